package pipeline

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOrdersAhead(t *testing.T) {
	orders, err := OrdersAhead([]int{3, 1}, 4)
	if err != nil || text(orders[0]) != "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3" || text(orders[1]) != "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3" {
		t.Errorf("%v, %v", orders, err)
	}
	// As many as by 1F1B are 1F1B.
	for m := 1; m < 7; m++ {
		orders, err := OrdersAhead([]int{4, 3, 2, 1}, m)
		want, err2 := Orders(OneForwardOneBackward, 4, 1, m)
		if err != nil || err2 != nil || !slices.EqualFunc(orders, want, slices.Equal) {
			t.Errorf("%d micro-batches: %v, want %v; %v", m, orders, want, err)
		}
	}
	for _, bad := range [][]int{nil, {0}, {1, 2}, {3, 0}} {
		if _, err := OrdersAhead(bad, 4); !errors.Is(err, ErrPipeline) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := OrdersAhead([]int{1, 1}, MaxOperations); !errors.Is(err, ErrPipeline) {
		t.Error(err)
	}
}

// Two stages of 1 + 1 s with 2 s on the way, four micro-batches. By 1F1B the first stage computes F0 at 0-1 and F1 at 1-2; they arrive at
// 3 and, one after the other, 5, and come back at 7 and 9. F2, at 8-9, arrives at 11, F3, at 10-11, at 13; back at 15 and 17: 18 s. With
// three ahead F2 arrives at 7 and F3, at 8-9, at 11, back at 15. With all ahead they arrive at 3, 5, 7 and 9, and come back at 7, 9, 11 and 13. Where
// the second stage takes all first, its last comes back at 19; one at a time takes 8 s each.
func TestSentAheadByHand(t *testing.T) {
	stages := []Timing{{Forward: 1, Backward: 1, SendNext: 2}, {Forward: 1, Backward: 1}}
	for _, c := range []struct {
		warmup []int
		want   float64
	}{{[]int{2, 1}, 18}, {[]int{3, 1}, 16}, {[]int{4, 1}, 14}, {[]int{4, 4}, 20}, {[]int{1, 1}, 32}} {
		orders, err := OrdersAhead(c.warmup, 4)
		if err != nil {
			t.Fatal(err)
		}
		ops, got, err := Simulate(stages, orders, true)
		if err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, by hand %v; %v, %v", c.warmup, got, c.want, ops, err)
		}
	}
}

// Overlapped is never slower than one after the other, the same without transfers, and never quicker than the busiest stage.
func TestOverlapped(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 60))
	for range 300 {
		p, m := 1+rng.IntN(5), 1+rng.IntN(12)
		stages, busiest := make([]Timing, p), 0.0
		for i := range stages {
			stages[i] = Timing{Forward: rng.Float64(), Backward: 2 * rng.Float64(), SendNext: rng.Float64()}
			busiest = max(busiest, float64(m)*(stages[i].Forward+stages[i].Backward))
		}
		warmup := make([]int, p)
		for i, least := p-1, 1; i >= 0; i-- {
			warmup[i] = least + rng.IntN(2)
			least = warmup[i]
		}
		orders, err := OrdersAhead(warmup, m)
		if err != nil {
			t.Fatal(err)
		}
		ops, overlapped, err := Simulate(stages, orders, true)
		_, apart, err2 := Simulate(stages, orders, false)
		if err != nil || err2 != nil || overlapped > apart+1e-9 || overlapped < busiest-1e-9 {
			t.Fatalf("%v, %v: %v s overlapped, %v s apart, busiest stage %v s; %v %v", stages, warmup, overlapped, apart, busiest, err, err2)
		}
		for _, of := range ops {
			for k := 1; k < len(of); k++ {
				if of[k].Start < of[k-1].End-1e-12 {
					t.Fatalf("passes at once: %+v", of)
				}
			}
		}
		for i := range stages {
			stages[i].SendNext = 0
		}
		_, overlapped, _ = Simulate(stages, orders, true)
		_, apart, _ = Simulate(stages, orders, false)
		if math.Abs(overlapped-apart) > 1e-9 {
			t.Fatalf("without transfers %v and %v s", overlapped, apart)
		}
	}
	two := []Timing{{Forward: 1, Backward: 1}, {Forward: 1, Backward: 1}}
	for _, orders := range [][][]Operation{{{{Stage: 2}}}, {{{Stage: 1}}, {{Stage: 0, Backward: true}}}} {
		if _, _, err := Simulate(two, orders, true); !errors.Is(err, ErrPipeline) {
			t.Errorf("%v: %v", orders, err)
		}
	}
}

// Whatever the last stage is said to take for sending, it sends to nobody.
func TestLastSendsToNobody(t *testing.T) {
	stages := []Timing{{Forward: 1, Backward: 2, SendNext: 1}, {Forward: 1, Backward: 2, SendNext: 0.5}, {Forward: 1, Backward: 2}}
	loud := slices.Clone(stages)
	loud[2].SendNext = 9
	orders, err := OrdersAhead([]int{3, 2, 1}, 32)
	if err != nil {
		t.Fatal(err)
	}
	_, want, err := Simulate(stages, orders, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := Simulate(loud, orders, true); err != nil || got != want {
		t.Errorf("%v s, want %v; %v", got, want, err)
	}
}
