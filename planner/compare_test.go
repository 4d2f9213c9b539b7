package planner

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	a, b := example(), example()
	if d := Compare(a, b); !d.None() {
		t.Fatalf("%+v", d)
	}
	// Layer 3 moves to the second stage, which gets two devices more and another share; nothing is predicted.
	b.MicroBatch, b.Predicted, b.Unused = 16, nil, nil
	b.Stages[0].To, b.Stages[0].Strategies[1].To = 3, 3
	b.Stages[0].Groups[0].MicroBatches = []int{7, 7}
	b.Stages[1] = Stage{From: 3, To: 6, Groups: []Group{{Devices{"t4", 0, 4}, 1, []int{2, 2, 2, 2}}, {Devices{"v100", 0, 2}, 1, []int{4, 4}}},
		Strategies: []Strategy{{3, 6, 0, Replicated, true, false}}}
	if err := b.Validate(6); err != nil {
		t.Fatal(err)
	}
	one, two := &LayerUse{1, "4 t4", "2", Replicated, false, false}, &LayerUse{1, "4 t4 + 2 v100", "1", Replicated, true, false}
	want := &Difference{
		Fields: []FieldDifference{{"micro_batch", 8, 16}, {"seconds", 1.5, nil}, {"simulated", 1.25, nil}, {"idle", 0.125, nil},
			{"peak_bytes a100", float64(1<<30 + 1<<29 + 1<<20), nil}, {"peak_bytes t4", float64(1<<31 + 1<<29 + 1<<20), nil}},
		Layers: []LayersDifference{{3, 4, &LayerUse{0, "4 a100 + 2 t4", "2+1", Optimizer, true, false}, two}, {4, 5, one, two}, {5, 6, &LayerUse{1, "4 t4", "1", Replicated, false, false}, two}},
		Devices: []DevicesDifference{
			{Devices{"a100", 0, 4}, &DeviceUse{0, 2, 3}, &DeviceUse{0, 2, 7}},
			{Devices{"v100", 0, 2}, nil, &DeviceUse{1, 1, 4}},
		},
	}
	if d := cmp.Diff(want, Compare(a, b)); d != "" {
		t.Error(d)
	}
	b.Stages[1].To, b.Stages[1].Strategies[0].To = 8, 8
	if d := Compare(a, b).Layers; d[len(d)-1].A != nil || d[len(d)-1].From != 6 || d[len(d)-1].To != 8 {
		t.Errorf("%+v", d)
	}
}

// Devices against a plain twin that looks at each of them.
func TestCompareDevices(t *testing.T) {
	draw := func(t *rapid.T, name string) *Plan {
		p := &Plan{Version: Version, Model: name, GlobalBatch: 60, MicroBatch: 60}
		next := map[string]int{}
		for i := range rapid.IntRange(1, 4).Draw(t, "stages") {
			s := Stage{From: i, To: i + 1, Strategies: []Strategy{{From: i, To: i + 1, Sharding: Replicated}}}
			class := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "class")
			g := Group{Devices{class, next[class] + rapid.IntRange(0, 3).Draw(t, "gap"), 0}, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "tensor"), nil}
			replicas := rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "replicas")
			g.Count = replicas * g.Tensor
			for range replicas {
				g.MicroBatches = append(g.MicroBatches, 60/replicas)
			}
			next[class] = g.First + g.Count
			s.Groups = []Group{g}
			p.Stages = append(p.Stages, s)
		}
		return p
	}
	each := func(p *Plan) map[string]DeviceUse {
		all := map[string]DeviceUse{}
		for i, s := range p.Stages {
			for _, g := range s.Groups {
				for d := range g.Count {
					all[fmt.Sprint(g.Device, g.First+d)] = DeviceUse{i, g.Tensor, g.MicroBatches[d/g.Tensor]}
				}
			}
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		for _, p := range []*Plan{a, b} {
			if err := p.Validate(0); err != nil {
				t.Fatal(err)
			}
		}
		x, y := each(a), each(b)
		found := map[string]bool{}
		for _, d := range Compare(a, b).Devices {
			for i := d.First; i < d.First+d.Count; i++ {
				k := fmt.Sprint(d.Device, i)
				found[k] = true
				u, inA := x[k]
				v, inB := y[k]
				if inA != (d.A != nil) || inB != (d.B != nil) || inA && *d.A != u || inB && *d.B != v || inA == inB && u == v {
					t.Fatalf("%s: %+v", k, d)
				}
			}
		}
		for _, all := range []map[string]DeviceUse{x, y} {
			for k := range all {
				if !found[k] && (x[k] != y[k]) {
					t.Fatalf("%s is missing", k)
				}
			}
		}
	})
}
