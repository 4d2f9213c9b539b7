package costmodel

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/planner/internal/invented"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// timesModel has layers of so many seconds, forward and back together, of a sample on device a, by tensor degree; links cost no time.
func timesModel(t *testing.T, nodes string, o Options, layers ...map[int]float64) *Model {
	t.Helper()
	top, err := clusterfile.ReadTopology(strings.NewReader(nodes), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &layerprofile.Profile{}
	for _, l := range layers {
		var runs []layerprofile.Run
		for tensor, s := range l {
			for _, n := range []int{1, 8} {
				runs = append(runs, layerprofile.Run{Device: "a", Tensor: tensor, MicroBatch: n, Forward: s / 2 * float64(n), Backward: s / 2 * float64(n)})
			}
		}
		p.Layers = append(p.Layers, layerprofile.Layer{Parameters: 1, Runs: runs})
	}
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, top, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tryAll is Exhaust without a limit of time, with all the work that there may be.
func (m *Model) tryAll(ctx context.Context, globalBatch int) *Exhausted {
	work := ExhaustWork
	return m.Exhaust(ctx, globalBatch, math.Inf(1), &work)
}

// By hand: 5 samples on three devices are 2, 2 and 1, which takes 2 s; in even shares one device would take them all.
func TestExhaustUnevenShares(t *testing.T) {
	m := timesModel(t, "nodes: [{device: a, count: 3, memory: 1GiB}]", Options{GlobalBatches: []int{5}}, map[int]float64{1: 1})
	x := m.tryAll(context.Background(), 5)
	if !x.Complete || x.Seconds != 2 || x.MicroBatch != 5 {
		t.Errorf("%+v", x)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if x := m.tryAll(ended, 5); x.Complete {
		t.Errorf("ended: %+v", x)
	}
}

// By hand: the first and the last layer want a device each, 1 s, and the middle one a whole machine, 1 s: whichever device the last takes,
// the middle one's machine is not the beginning of the devices that are free.
func TestExhaustWholeMachine(t *testing.T) {
	one, machine := map[int]float64{1: 1, 2: 100}, map[int]float64{1: 100, 2: 1}
	m := timesModel(t, "nodes: [{device: a, count: 4, per_machine: 2, memory: 1GiB}]", Options{GlobalBatches: []int{1}, LeastStages: 3}, one, machine, one)
	x := m.tryAll(context.Background(), 1)
	if !x.Complete || x.Seconds != 3 || len(x.Stages) != 3 || x.Stages[1].Groups[0].Tensor != 2 {
		t.Errorf("%+v", x)
	}
}

// fourClasses is a model of two equal layers on two devices each of four classes, which take a second more than the class before.
func fourClasses(t *testing.T, batch int) *Model {
	t.Helper()
	p, top, err := invented.FourClasses()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(p, top, Options{GlobalBatches: []int{batch}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Shares of large micro-batches over four classes are so many that going through them and pricing their layers is most of the work: it
// counts, and the context is looked at all the while.
func TestExhaustLargeMicroBatches(t *testing.T) {
	m := fourClasses(t, 64)
	soon, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if x := m.tryAll(soon, 64); x.Complete || time.Since(begun) > 5*time.Second {
		t.Errorf("to be ended: %+v in %v", x, time.Since(begun))
	}
	if testing.Short() {
		return
	}
	m = fourClasses(t, 2048)
	begun = time.Now()
	if x := m.tryAll(context.Background(), 2048); x.Complete || time.Since(begun) > time.Minute {
		t.Errorf("of 2048 samples: %+v in %v", x, time.Since(begun))
	}
}

// A strategy that another of its tensor degree is as good as in everything goes; one that takes less of anything stays.
func TestDropDominated(t *testing.T) {
	cost := func(step, once, states, active, peak float64) (c layerCost) {
		c.step[0], c.perIteration[0], c.states[0], c.active[0], c.peak[0] = step, once, states, active, peak
		return c
	}
	costs := []layerCost{cost(3, 3, 3, 3, 3), cost(3, 3, 3, 3, 3), cost(4, 3, 3, 3, 3), cost(4, 2, 3, 3, 3), cost(4, 3, 2, 3, 3), cost(4, 3, 3, 2, 3), cost(4, 3, 3, 3, 2), cost(5, 5, 5, 5, 5)}
	f := &configuration{groups: []Group{{}}, strategies: make([]Strategy, len(costs))}
	f.strategies[7].Tensor = 2
	f.dropDominated(costs)
	for i, c := range costs {
		if gone := i == 1 || i == 2; math.IsInf(c.step[0], 1) != gone {
			t.Errorf("%d: %v", i, c.step[0])
		}
	}
}

// Calls that share their work share the limit: where it suffices for two together both are complete, with half of it the second gives up.
func TestExhaustSharedWork(t *testing.T) {
	m := fourClasses(t, 8)
	used := 0
	for _, batch := range []int{8, 10} {
		left := ExhaustWork
		m.Exhaust(context.Background(), batch, math.Inf(1), &left)
		used += ExhaustWork - left
	}
	for left, complete := range map[int]bool{used + 1: true, used / 2: false} {
		first := m.Exhaust(context.Background(), 8, math.Inf(1), &left)
		second := m.Exhaust(context.Background(), 10, math.Inf(1), &left)
		if !first.Complete || second.Complete != complete || left > 1 {
			t.Errorf("complete %v and %v, want %v; %d units left", first.Complete, second.Complete, complete, left)
		}
	}
}
