package env

import (
	"math"
	"testing"
)

// seeing feeds rounds of one second of work at these slowdowns over the level, noise 2%.
func seeing(s *spells, now *float64, over ...float64) (begins []int) {
	for k, o := range over {
		b, ends := s.see(o, 0.02, *now, o, 1)
		if b {
			begins = append(begins, k)
		}
		if ends {
			s.end()
		}
		*now += o
	}
	return begins
}

func TestSpellsAreTold(t *testing.T) {
	for _, x := range []struct {
		name           string
		over           []float64
		begins         int // place of the round in which a spell counts; -1: none
		since          float64
		excess, length float64
	}{
		{"noise", []float64{1, 1.05, 0.97, 1.1, 1}, -1, 0, 0, 0},
		{"a spike", []float64{1, 1.4, 1, 1}, -1, 0, 0, 0},
		{"a standstill in one round", []float64{1, 2.5, 1}, 2, 1.5, 1.5, 2.5},
		{"a spell that begins with a round", []float64{1, 2, 2, 2, 2, 1}, 2, 1, 1, 8},
		{"one that begins in the middle of a round", []float64{1, 1.5, 2, 2, 2, 1}, 2, 1.5, 1, 7},
		{"an uneven one", []float64{1, 1.5, 2, 2.4, 2, 1}, 2, 1.5, 1.2, 7.15},
		{"a slight one", []float64{1, 1.4, 1.4, 1.4, 1}, 2, 1, 0.4, 4.2},
		{"one that ends in the middle of a round", []float64{1, 2, 2, 2, 1.5, 1}, 2, 1, 1, 7},
	} {
		var s spells
		now := 0.0
		got := seeing(&s, &now, x.over...)
		if x.begins < 0 {
			if len(got) > 0 || s.excess != 0 {
				t.Errorf("%s: begins in %v, %+v", x.name, got, s)
			}
			continue
		}
		s = spells{count: 1}
		now = 0
		if got = seeing(&s, &now, x.over...); len(got) != 1 || got[0] != x.begins || math.Abs(s.since-x.since) > 1e-9 {
			t.Errorf("%s: begins in rounds %v at %v, want %d at %v", x.name, got, s.since, x.begins, x.since)
		}
		if math.Abs(s.excess-x.excess) > 1e-9 || math.Abs(s.length-x.length) > 1e-9 || s.rounds != 0 || s.counted {
			t.Errorf("%s: excess %v for %v s, want %v for %v: %+v", x.name, s.excess, s.length, x.excess, x.length, s)
		}
	}
}

func TestSignsAreCounted(t *testing.T) {
	var s spells
	now := 0.0
	for k, x := range []struct {
		over float64
		want int
	}{{1.1, 1}, {1.1, 2}, {1.02, 0}, {1.1, 1}, {1.5, 0}, {1.05, 1}, {1.035, 0}} {
		if seeing(&s, &now, x.over); s.omen != x.want {
			t.Errorf("round %d: %d rounds a little slower, want %d", k, s.omen, x.want)
		}
	}
}
