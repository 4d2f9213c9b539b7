package pipeline

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// text writes an order as forward (F), backward (B) and weights' (W) passes: stage, letter, micro-batch.
func text(order []Operation) string {
	var all []string
	for _, op := range order {
		kind := "F"
		if op.Backward {
			kind = "B"
		}
		if op.Weights {
			kind = "W"
		}
		all = append(all, fmt.Sprintf("%d%s%d", op.Stage, kind, op.MicroBatch))
	}
	return strings.Join(all, " ")
}

// Orders as in figure 4 of arXiv 2104.04473 (first eight passes of its device 1, two stages each) and in PyTorch's schedules, by hand.
func TestOrders(t *testing.T) {
	for _, c := range []struct {
		schedule                  Schedule
		devices, chunks, m, which int
		want                      string
	}{
		{OneForwardOneBackward, 2, 1, 2, 0, "0F0 0F1 0B0 0B1"},
		{Interleaved, 2, 2, 2, 0, "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1"},
		{Interleaved, 2, 2, 4, 0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"},
		{Interleaved, 2, 2, 4, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
		{ZeroBubble, 3, 1, 4, 0, "0F0 0F1 0F2 0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3"},
		{ZeroBubble, 3, 1, 4, 1, "1F0 1F1 1B0 1F2 1B1 1W0 1F3 1B2 1W1 1B3 1W2 1W3"},
		{ZeroBubble, 3, 1, 4, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2W0 2F3 2B3 2W1 2W2 2W3"},
		{ZeroBubble, 3, 1, 1, 2, "2F0 2B0 2W0"},
	} {
		orders, err := Orders(c.schedule, c.devices, c.chunks, c.m)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(orders[c.which]); got != c.want {
			t.Errorf("%v, device %d of %d: %s\nwant %s", c.schedule, c.which, c.devices, got, c.want)
		}
	}
}

// Bubbles of equal stages as their papers have them: interleaved (devices - 1)(f + b) / chunks (2104.04473, 2.2), ZB-H1
// (stages - 1)(f + b - w) with b the whole backward pass less w (2401.10241, table 2).
func TestBubbles(t *testing.T) {
	for _, p := range []int{2, 3, 4, 7} {
		for _, v := range []int{1, 2, 3} {
			m := 3 * p
			orders, err := Orders(Interleaved, p, v, m)
			if err != nil {
				t.Fatal(err)
			}
			stages := make([]Timing, p*v)
			for k := range stages {
				stages[k] = Timing{Forward: 1, Backward: 2}
			}
			_, got, err := Simulate(stages, orders, false)
			if want := 3*float64(m*v) + 3*float64(p-1); err != nil || math.Abs(got-want) > 1e-9 {
				t.Errorf("interleaved, %d x %d: %v, want %v; %v", p, v, got, want, err)
			}
		}
		stages := make([]Timing, p)
		for k := range stages {
			stages[k] = Timing{Forward: 1, Backward: 2, Weights: 1}
		}
		orders, err := Orders(ZeroBubble, p, 1, 3*p)
		if err != nil {
			t.Fatal(err)
		}
		ops, got, err := Simulate(stages, orders, false)
		if want := 3*float64(3*p) + float64(p-1); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("zb-h1, %d: %v, want %v; %v", p, got, want, err)
		}
		for d := range ops {
			if len(ops[d]) != 9*p {
				t.Errorf("stage %d: %d passes", d, len(ops[d]))
			}
		}
	}
}

func TestBadOrders(t *testing.T) {
	for _, c := range []struct {
		s       Schedule
		p, v, m int
	}{{Interleaved, 2, 2, 3}, {ZeroBubble, 2, 2, 4}, {OneForwardOneBackward, 0, 1, 1}, {Interleaved, 2, 0, 2}, {Interleaved, 1024, 1024, 1024}, {"later", 2, 1, 2}, {OneForwardOneBackward, 1, 1, 0}, {OneForwardOneBackward, 1 << 19, 1, 4}} {
		if _, err := Orders(c.s, c.p, c.v, c.m); !errors.Is(err, ErrPipeline) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	two := []Timing{{Forward: 1, Backward: 1}, {Forward: 1, Backward: 1}}
	for _, orders := range [][][]Operation{{{{Stage: 2}}}, {{{MicroBatch: -1}}}, {{{Stage: 1}}, {{Stage: 0, Backward: true}}}} {
		if _, _, err := Simulate(two, orders, false); !errors.Is(err, ErrPipeline) {
			t.Errorf("%v: %v", orders, err)
		}
	}
	if _, _, err := Simulate([]Timing{{Backward: 1, Weights: 2}}, nil, false); !errors.Is(err, ErrPipeline) {
		t.Errorf("more for the weights than the whole: %v", err)
	}
}
