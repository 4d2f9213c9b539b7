package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/planner/search"
)

func tiny(t *testing.T, megabytes int) *model {
	t.Helper()
	p, err := readProfile("testdata", "tiny", 128)
	if err != nil {
		t.Fatal(err)
	}
	return &model{p, setting{layers: 4, hidden: 2048, sequence: 128, batch: 4, devices: 4, limit: megabytes}}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12*math.Abs(want) {
		t.Errorf("%s: %v, by hand %v", what, got, want)
	}
}

func TestLayerByHand(t *testing.T) {
	m := tiny(t, 4096)
	// Two samples each: forward 2*2+1 ms, backward twice; 3/4 of 100 MB of gradients at 50 MB/ms beside it, slower by 1.25.
	sync, plain := m.layer(strategy{1, 1, 1, 2, 2, false}, 1)
	near(t, "data parallel, plain", plain, 0.015)
	near(t, "data parallel", sync, (5+1.25*1.25+(12.5-1.25*1.25)/1.25)/1000)
	// Four samples on two devices, checkpointed: forward 5 ms, backward three times; 9 all-gathers of 2 MB; stages 2.
	_, plain = m.layer(strategy{2, 2, 1, 1, 0, true}, 1)
	near(t, "tensor parallel", plain, (5+15+9*(0.2+0.2)/2+2*2*2*0.1/4)/1000)
	if got, want := m.layerMemory(strategy{2, 2, 1, 1, 0, true}, 2, 0), 200+16; got != want { // 2 samples, 2 in flight, 8/2 MB each
		t.Errorf("%d MB, by hand %d", got, want)
	}
	if got := sharded(3, 4, 2); math.Abs(got-(7.0/8*0.253+1.0/8)) > 1e-15 {
		t.Errorf("share %v of the states", got)
	}
}

func TestScoreByHand(t *testing.T) {
	m := tiny(t, 4096)
	p := &plan{chunks: 4, vocabulary: strategy{4, 1, 1, 1, 0, false}, division: []int{1, 1, 1, 1}}
	for range 4 {
		p.layers = append(p.layers, strategy{4, 1, 1, 1, 0, false})
	}
	// A sample: layer 9 ms and 4*2*0.5/8/4 between stages; vocabulary 4.5 ms, half of it at each end.
	layer, end := 9.0+4*2*0.5/8/4, 4.5/2
	near(t, "score", m.score(p), (4*layer+2*end+3*(layer+end))/1000)
	near(t, "counted", m.counted(p), m.score(p))
}

// every calls f with every plan of as many micro-batches and stages, but for the order of layers in a stage.
func (m *model) every(chunks, degree int, f func(p *plan)) {
	ways := m.strategies(degree, chunks)
	for _, v := range ways {
		if v.checkpoint {
			continue
		}
		p := &plan{chunks: chunks, vocabulary: v, division: make([]int, degree), layers: make([]strategy, m.layers)}
		var layer func(stage, from, next, least int)
		layer = func(stage, from, next, least int) {
			if next > from && stage < degree-1 { // the next stage begins
				p.division[stage] = next - from
				layer(stage+1, next, next, 0)
			}
			if next == m.layers {
				if stage == degree-1 && next > from {
					p.division[stage] = next - from
					f(p)
				}
				return
			}
			for w := least; w < len(ways); w++ {
				p.layers[next] = ways[w]
				layer(stage, from, next+1, w)
			}
		}
		layer(0, 0, 0, 0)
	}
}

func TestSearchIsExact(t *testing.T) {
	infeasible := 0
	for _, megabytes := range []int{1500, 1700, 2000, 2300, 2700, 4096} {
		m := tiny(t, megabytes)
		want := math.Inf(1)
		for chunks := 1; chunks <= 4; chunks *= 2 {
			for degree := 1; degree <= chunks; degree *= 2 {
				m.every(chunks, degree, func(p *plan) {
					if c := m.counted(p); c < want && m.over(p) == 0 {
						want = c
					}
				})
			}
		}
		p, found, err := m.search(context.Background(), false)
		if math.IsInf(want, 1) {
			infeasible++
			if !errors.Is(err, search.ErrInfeasible) {
				t.Fatalf("%d MB: %v, %v; brute force finds no plan", megabytes, p, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		near(t, "searched", found.Best[0].Total, want)
		near(t, "bound", found.Bound, want)
		near(t, "counted", m.counted(p), want)
		if m.over(p) > 0 {
			t.Errorf("%d MB: %v takes %d MB too many", megabytes, p, m.over(p))
		}
		theirs := m.peer(func(int) {})
		ours, _, err := m.search(context.Background(), true)
		if err != nil {
			t.Fatal(err)
		}
		if m.over(ours) > 0 || m.over(theirs) > 0 || slices.Max(ours.division) != slices.Min(ours.division) {
			t.Errorf("%d MB: %v and %v", megabytes, ours, theirs)
		}
		if ours.seconds > theirs.seconds*(1+1e-12) {
			t.Errorf("%d MB: %v in %v, Galvatron's search finds %v in %v", megabytes, ours, ours.seconds, theirs, theirs.seconds)
		}
	}
	if infeasible != 1 {
		t.Errorf("%d memories without a plan", infeasible)
	}
}

func TestReadProfileSaysWhatIsMissing(t *testing.T) {
	if _, err := readProfile("testdata", "tiny", 512); err == nil {
		t.Error("a sequence length that was not measured")
	}
	if _, err := readProfile("testdata", "huge", 128); err == nil {
		t.Error("a model that was not measured")
	}
}
