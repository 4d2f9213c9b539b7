package costmodel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"evenkeel/planner/search"
)

// A stage that mixes a and b gives a more samples, so that both finish together.
func TestShares(t *testing.T) {
	m := handModel(t, Options{GlobalBatches: []int{8}, Replicas: []int{2}, MicroBatches: []int{4}, Overlap: noOverlap})
	all := m.Conditions()
	if len(all) != 1 || all[0].GlobalBatch != 8 || all[0].MicroBatch != 8 {
		t.Fatalf("%d conditions, %+v", len(all), all)
	}
	c := all[0]
	// On a 6 x 4 = 24 s a sample, at tensor degree 2 12.6 s, on b 6 x 5.5 x 2 = 66 s. Of 8 samples, a takes 6 and b 2:
	// 144 and 132 s; 5 and 3 would take 198 s. At tensor degree 2, 7 and 1: 88.2 and 66 s. Equal shares are tried, too.
	shares := map[string]bool{}
	for i, f := range c.configurations {
		text := ""
		for _, g := range f.groups {
			text += fmt.Sprintf("%d:%dx%d%v ", g.Class, g.Replicas, g.Tensor, g.Shares)
		}
		shares[text] = true
		if len(f.groups) == 2 && (c.shapes[i][0] == 0 || c.shapes[i][1] == 0) {
			t.Errorf("%s has the shape %v", text, c.shapes[i])
		}
	}
	for _, want := range []string{"0:2x1[4 4] ", "0:2x2[4 4] ", "1:2x1[4 4] ", "0:1x1[6] 1:1x1[2] ", "0:1x2[7] 1:1x1[1] ", "0:1x1[4] 1:1x1[4] ", "0:1x2[4] 1:1x1[4] "} {
		if !shares[want] {
			t.Errorf("no configuration %s in %v", want, shares)
		}
		delete(shares, want)
	}
	if len(shares) > 0 {
		t.Errorf("too many: %v", shares)
	}
}

func handCondition(t *testing.T, replicas, micro int) *Condition {
	t.Helper()
	m := handModel(t, Options{GlobalBatches: []int{16}, Replicas: []int{replicas}, MicroBatches: []int{micro}, Overlap: noOverlap, LeastStages: 2, MostStages: 3})
	all := m.Conditions()
	if len(all) != 1 {
		t.Fatalf("%d conditions", len(all))
	}
	return all[0]
}

func TestCondition(t *testing.T) {
	c := handCondition(t, 2, 2)
	if least, most := c.Degrees(); least != 2 || most != 3 || c.Layers() != 3 || !slices.Equal(c.Pool(), []int{8, 4}) || !slices.Equal(c.Grain(), []int{4, 2}) {
		t.Errorf("%d to %d stages, %d layers, %v", least, most, c.Layers(), c.Pool())
	}
	// Four micro-batches of 4 of 16 samples.
	same(t, "total", c.Total(search.Front{Max: 5, Sum: 12, PerIteration: 3, Stages: 2}), (12+3*5+3)/16.0)
	// The first layer's least work: of a micro-batch of 4 samples at 4 s and tensor degree 1, or 2.1 s of 2 devices. On b
	// 5.5 x 2 x 4. No shape's replicas have other shares that make it less, as times are proportional to samples.
	same(t, "work of a", c.Work(0, 0), 16)
	same(t, "work of b", c.Work(1, 2), 3*11*4)
	shape := func(text string) int {
		for i, f := range c.configurations {
			if fmt.Sprint(f.groups[0].Class, f.groups[0].Devices(), len(f.groups)) == text {
				return i
			}
		}
		t.Fatalf("no shape %s", text)
		return -1
	}
	a2, a4, b2 := shape("0 2 1"), shape("0 4 1"), shape("1 2 1")
	// Devices are taken from the last: a stage of two of a machine of four lies within one.
	for _, f := range []struct {
		shape int
		used  []int
		want  bool
	}{{a2, []int{0, 0}, true}, {a2, []int{1, 0}, true}, {a2, []int{2, 0}, true}, {a2, []int{3, 0}, false}, {a4, []int{0, 0}, true}, {a4, []int{4, 0}, true}, {a4, []int{2, 0}, false},
		{b2, []int{3, 0}, true}, {b2, []int{0, 1}, false}, {b2, []int{0, 2}, true}} {
		if c.Fits(f.shape, f.used) != f.want {
			t.Errorf("%v after %v fits: %v", c.shapes[f.shape], f.used, !f.want)
		}
	}
	kinds := map[int]bool{c.Kind(a2): true, c.Kind(a4): true, c.Kind(b2): true}
	if len(kinds) != 3 {
		t.Errorf("part of a machine, a machine and another class are %d kinds", len(kinds))
	}
	// Two stages of two a in one machine: 2 (1 + 80/1000). If the next ends at its machine's first device: 2 (6 + 2 x
	// 80/100); to b over 8 s and 50 kB/s.
	for _, b := range []struct {
		next int
		used []int
		want float64
	}{{a2, []int{2, 0}, 2 * 1.08}, {a2, []int{4, 0}, 2 * 7.6}, {a4, []int{4, 0}, 2 * 7.6}, {b2, []int{0, 2}, 2 * (8 + 160/50.0)}, {b2, []int{2, 2}, 2 * (8 + 160/50.0)}} {
		s := c.Boundary(1, a2, c.Kind(b.next), b.used)
		same(t, fmt.Sprintf("boundary to %v, %v used", c.shapes[b.next], b.used), s.Busy, b.want)
		same(t, "the same in the sum", s.Passing, b.want)
		blocking := c.Model
		c.Model = blocking.Beside()
		s = c.Boundary(1, a2, c.Kind(b.next), b.used)
		c.Model = blocking
		same(t, "beside computing", s.Busy, 0)
		same(t, "the same in the sum", s.Passing, b.want)
		same(t, "one way", s.Link, b.want/2)
	}
}

// Preset conditions are all divisors that the options do not exclude.
func TestConditions(t *testing.T) {
	list := func(o Options) string {
		o.Overlap = noOverlap
		text := ""
		for _, c := range handModel(t, o).Conditions() {
			text += fmt.Sprintf("%d/%d/%d ", c.GlobalBatch, c.replicas, c.MicroBatch)
		}
		return strings.TrimSpace(text)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{GlobalBatches: []int{6}}, "6/1/1 6/1/2 6/1/3 6/1/6 6/2/2 6/2/6 6/3/3 6/3/6 6/6/6"},
		{Options{GlobalBatches: []int{4, 2}, Replicas: []int{2}}, "4/2/2 4/2/4 2/2/2"},
		{Options{GlobalBatches: []int{12}, Replicas: []int{4, 5}, MicroBatches: []int{1, 2, 3}}, "12/4/4 12/4/12"},
		{Options{GlobalBatches: []int{16}, Replicas: []int{1}, MicroBatches: []int{8, 16}}, "16/1/8 16/1/16"}, // 16 samples go to two devices
		{Options{GlobalBatches: []int{13}}, "13/1/1 13/1/13"},                                                 // 13 replicas are more than 12 devices
	} {
		if got := list(c.o); got != c.want {
			t.Errorf("%v: %s, want %s", c.o.GlobalBatches, got, c.want)
		}
	}
	for n, want := range map[int][]int{1: {1}, 7: {1, 7}, 12: {1, 2, 3, 4, 6, 12}, 16: {1, 2, 4, 8, 16}} {
		if got := Divisors(n); !slices.Equal(got, want) {
			t.Errorf("divisors of %d: %v", n, got)
		}
	}
	if got := Even(7, 3); !slices.Equal(got, []int{3, 2, 2}) {
		t.Errorf("7 over 3: %v", got)
	}
}
