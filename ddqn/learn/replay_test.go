package learn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/ddqn"
)

// window is an n-step window as the dumb twin sees it.
type window struct {
	x, later, returns, live, weights []float32
	actions                          []int
	discount                         float32
}

// dumbWindows enumerates the windows of one stream from the list of everything that was ever added to it.
func dumbWindows(all []Step, c ReplayConfig, n int, gamma float64) []window {
	kept := all[max(0, len(all)-c.Capacity):]
	var windows []window
	for t, s := range kept {
		if s.Kind == Last {
			continue
		}
		end := t + n
		for k := t; k <= t+n && k < len(kept); k++ {
			if kept[k].Kind == Last {
				end = k
				break
			}
		}
		if end >= len(kept) {
			continue
		}
		w := window{
			x: s.Rows, later: kept[end].Rows, weights: s.Weights, actions: s.Actions,
			returns: make([]float32, c.Group*c.Objectives), live: make([]float32, c.Group),
			discount: float32(math.Pow(gamma, float64(end-t))),
		}
		if kept[end].Terminal {
			w.discount = 0
		}
		for m := range c.Group {
			alive := true
			for k := t; k <= end; k++ {
				alive = alive && (kept[k].Live == nil || kept[k].Live[m])
			}
			if alive {
				w.live[m] = 1
			}
			for r := range c.Objectives {
				total := 0.0
				for k := t; k < end; k++ {
					total += math.Pow(gamma, float64(k-t)) * float64(kept[k].Rewards[m*c.Objectives+r])
				}
				w.returns[m*c.Objectives+r] = float32(total)
			}
		}
		windows = append(windows, w)
	}
	return windows
}

func close32(a, b []float32) bool {
	for i := range a {
		if abs(a[i]-b[i]) > 1e-5*max(1, abs(b[i])) {
			return false
		}
	}
	return len(a) == len(b)
}

func (w window) equals(o window) bool {
	for i := range w.actions {
		if w.actions[i] != o.actions[i] {
			return false
		}
	}
	return sameBits(w.x, o.x) < 0 && sameBits(w.later, o.later) < 0 && sameBits(w.weights, o.weights) < 0 &&
		sameBits(w.live, o.live) < 0 && close32(w.returns, o.returns) && abs(w.discount-o.discount) < 1e-6
}

// group returns group g of a batch.
func (b *batch) group(g int) window {
	groups := len(b.discount)
	rows, features, objectives := len(b.live)/groups, len(b.x)/groups, len(b.weights)/groups
	return window{
		x: b.x[g*features:][:features], later: b.later[g*features:][:features], actions: b.actions[g*rows:][:rows],
		returns: b.returns[g*rows*objectives:][:rows*objectives], live: b.live[g*rows:][:rows],
		weights: b.weights[g*objectives:][:objectives], discount: b.discount[g],
	}
}

func TestReplayEqualsDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := ReplayConfig{
			Streams: rapid.IntRange(1, 3).Draw(t, "streams"), Capacity: rapid.IntRange(2, 12).Draw(t, "capacity"),
			Group: rapid.IntRange(1, 3).Draw(t, "group"), Features: 2, Objectives: rapid.IntRange(1, 2).Draw(t, "objectives"),
		}
		n := rapid.IntRange(1, 5).Draw(t, "n")
		const gamma = 0.9
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		replay, err := NewReplay(c)
		if err != nil {
			t.Fatal(err)
		}
		all := make([][]Step, c.Streams)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			s := rng.IntN(c.Streams)
			kind := First
			if k := len(all[s]); k > 0 && all[s][k-1].Kind != Last {
				kind = []Kind{Mid, Mid, Last}[rng.IntN(3)]
			}
			step := randomStep(c, 4, kind, rng)
			if rng.IntN(4) == 0 {
				step.Live = nil
			}
			if err := replay.Add(s, step); err != nil {
				t.Fatal(err)
			}
			all[s] = append(all[s], step)
		}
		var want []window
		for s := range all {
			want = append(want, dumbWindows(all[s], c, n, gamma)...)
		}
		if got := replay.samples(n); got != len(want) {
			t.Fatalf("%d samples, want %d", got, len(want))
		}
		if len(want) == 0 {
			return
		}
		b := newBatch(50*len(want), c.Group, c.Features, c.Objectives)
		replay.sample(b, n, gamma, rng)
		drawn := make([]int, len(want))
	groups:
		for g := range b.discount {
			got := b.group(g)
			for i, w := range want {
				if got.equals(w) {
					drawn[i]++
					continue groups
				}
			}
			t.Fatalf("drew %+v, which is no window", got)
		}
		for i, k := range drawn { // 50 expected each, deviation 7
			if k < 10 || k > 100 {
				t.Errorf("window %d of %d was drawn %d times in %d", i, len(want), k, len(b.discount))
			}
		}
	})
}

func TestReplayRefusesBadSteps(t *testing.T) {
	c := ReplayConfig{Streams: 1, Capacity: 4, Group: 2, Features: 2, Objectives: 1}
	good := func() Step {
		return Step{Kind: Mid, Rows: make([]float32, 4), Actions: []int{0, 1}, Rewards: make([]float32, 2), Weights: []float32{1}}
	}
	for name, spoil := range map[string]func(*Step){
		"rows":            func(s *Step) { s.Rows = s.Rows[1:] },
		"live":            func(s *Step) { s.Live = []bool{true} },
		"actions":         func(s *Step) { s.Actions = nil },
		"rewards":         func(s *Step) { s.Rewards = s.Rewards[1:] },
		"weights":         func(s *Step) { s.Weights = nil },
		"negative action": func(s *Step) { s.Actions[1] = -1 },
		"NaN row":         func(s *Step) { s.Rows[3] = float32(math.NaN()) },
		"infinite reward": func(s *Step) { s.Rewards[0] = float32(math.Inf(1)) },
		"NaN weight":      func(s *Step) { s.Weights[0] = float32(math.NaN()) },
		"kind":            func(s *Step) { s.Kind = 3 },
		"first again":     func(s *Step) { s.Kind = First },
		"terminal mid":    func(s *Step) { s.Terminal = true },
	} {
		r, err := NewReplay(c)
		if err != nil {
			t.Fatal(err)
		}
		first := good()
		first.Kind = First
		if err := r.Add(0, first); err != nil {
			t.Fatal(err)
		}
		s := good()
		spoil(&s)
		if err := r.Add(0, s); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if r.size() != 1 {
			t.Errorf("%s: a refused step was kept", name)
		}
		if err := r.Add(0, good()); err != nil {
			t.Errorf("%s: a good step afterwards: %v", name, err)
		}
	}
	r, _ := NewReplay(c)
	if err := r.Add(0, good()); err == nil {
		t.Error("an episode began with Mid")
	}
	if err := r.Add(1, good()); err == nil {
		t.Error("unknown stream")
	}
	if err := r.Add(0, Step{Kind: First, Rows: []float32{0, 0, 0, float32(math.NaN())}}); !errors.Is(err, ddqn.ErrNotFinite) {
		t.Errorf("NaN: %v", err)
	}
	if _, err := NewReplay(ReplayConfig{Streams: 1 << 20, Capacity: 1 << 20, Group: 8, Features: 8, Objectives: 8}); err == nil {
		t.Error("an absurd replay was made")
	}
	if got := fmt.Sprint(First, Mid, Last, Kind(7)); got != "First Mid Last Kind(7)" {
		t.Errorf("kinds are %s", got)
	}
}
