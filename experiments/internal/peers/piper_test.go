package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/planner/search"
	"pgregory.net/rapid"
)

// smallPiper is a chain of layers in Piper's format; the first two nodes are inputs.
func smallPiper(t *rapid.T) *Piper {
	layers := rapid.IntRange(2, 4).Draw(t, "layers")
	number := func(name string, high int) int { return rapid.IntRange(1, high).Draw(t, name) }
	var nodes, edges []string
	for i := range layers {
		in, out := "", ""
		if i > 0 {
			in = fmt.Sprintf(`"%d":%d`, i-1, number("sync", 5))
			edges = append(edges, fmt.Sprintf(`{"sourceId":%d,"destId":%d,"communicationCost":%d}`, i-1, i, number("edge", 9)))
		}
		if i < layers-1 {
			out = fmt.Sprintf(`"%d":%d`, i+1, number("sync", 5))
		}
		var ways []string
		for _, d := range []int{1, 2} {
			time, size, a, b := number("time", 40), number("size", 9), number("a", 9), number("b", 9)
			way := func(id string, time, a int) string {
				return fmt.Sprintf(`{"id":"%s","timePerSample":%d,"parameterSize":%d,"memoryUsageA":%d,"memoryUsageB":%d,"syncTimeFw":{%s},"syncTimeBw":{%s}}`, id, time, size, a, b, in, out)
			}
			ways = append(ways, fmt.Sprintf(`"%d":[%s,%s]`, d, way("vanilla", time, a+3), way("activation recomp", time+number("more", 9), a)))
		}
		nodes = append(nodes, fmt.Sprintf(`{"id":%d,"name":"%s","TMPCs":{%s}}`, i, piperLayer, strings.Join(ways, ",")))
	}
	p, err := ReadPiper(strings.NewReader(fmt.Sprintf(`{"maxDevices":4,"maxMemoryPerDevice":%d,"bandwidth":3,"mbsInBatch":4,"nodes":[%s],"edges":[%s]}`,
		number("memory", 120), strings.Join(nodes, ","), strings.Join(edges, ","))))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// best tries every plan of a chain: every cut, degree and way.
func best(p *Piper, from, devices int, plan []PiperStage) float64 {
	if from == len(p.nodes) {
		score, err := p.Score(plan)
		if err != nil {
			return math.Inf(1)
		}
		return score
	}
	least := math.Inf(1)
	for to := from + 1; to <= len(p.nodes); to++ {
		for _, t := range []int{1, 2} {
			for d := 1; d*t <= devices; d++ {
				for ways := range 1 << (to - from) {
					s := PiperStage{Data: d, Tensor: t}
					for k := from; k < to; k++ {
						s.Nodes = append(s.Nodes, p.nodes[k].id)
						s.Ways = append(s.Ways, ways>>(k-from)&1)
					}
					least = min(least, best(p, to, devices-d*t, append(plan[:len(plan):len(plan)], s)))
				}
			}
		}
	}
	return least
}

func TestPlanPiper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := smallPiper(t)
		want := best(p, 0, p.Devices, nil)
		plan, got, err := p.PlanPiper(context.Background())
		if errors.Is(err, search.ErrInfeasible) {
			if !math.IsInf(want, 1) {
				t.Fatalf("no plan found; there is one of %v", want)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if score, err := p.Score(plan); err != nil || score != got || math.IsInf(got, 1) {
			t.Fatalf("score %v, said %v, %v", score, got, err)
		}
		// Which layers are recomputed follows a rule that need not be best; without need of memory it is exact.
		p.Memory = 1e9
		want = best(p, 0, p.Devices, nil)
		if _, got, err = p.PlanPiper(context.Background()); err != nil || got > want*(1+2*piperGap) || got < want*(1-1e-9) {
			t.Fatalf("%v, want %v; %v", got, want, err)
		}
	})
}

func TestRepeatPiper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := smallPiper(t)
		if len(p.nodes) < 3 {
			return
		}
		// Where a copy's edge is cheaper than the layer's, cutting beside it can make the longer model quicker: no messages here.
		p.Devices, p.Memory, p.Bandwidth = 4, 1e9, 1e12
		_, before, err := p.PlanPiper(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Repeat(7); err != nil || len(p.nodes) != 7 {
			t.Fatalf("%d nodes, %v", len(p.nodes), err)
		}
		plan, after, err := p.PlanPiper(context.Background())
		if err != nil || after < before*(1-1e-6) {
			t.Fatalf("%v after %v, %v", after, before, err)
		}
		covered := 0
		for _, s := range plan {
			covered += len(s.Nodes)
		}
		if covered != 7 {
			t.Fatalf("%d nodes planned", covered)
		}
	})
}

func FuzzReadPiper(f *testing.F) {
	f.Add(`{"maxDevices":1,"maxMemoryPerDevice":1,"bandwidth":1,"mbsInBatch":1,"nodes":[{"id":0,"TMPCs":{"1":[{"id":"v","timePerSample":1}]}}],"edges":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ReadPiper(strings.NewReader(text)); err == nil && len(p.nodes) == 0 {
			t.Fatal("no nodes")
		} else if err != nil && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
	})
}
