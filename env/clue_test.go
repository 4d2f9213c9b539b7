package env

import (
	"math"
	"testing"
)

// learned is a clue after spells at these times, for rounds of a second.
func learned(times ...float64) clue {
	c := clue{prior: firstOff}
	for _, at := range times {
		c.learn(at, 1)
	}
	return c
}

func TestClueFindsTheLag(t *testing.T) {
	for _, x := range []struct {
		name  string
		times []float64
		due   float64
	}{
		{"one interval", []float64{3, 23}, 43},
		{"a steady one", []float64{3, 23, 43, 63, 83}, 103},
		{"one spell was missed", []float64{3, 23, 43, 83}, 103},
		{"two were", []float64{3, 23, 43, 103}, 123},
		{"a stray one", []float64{3, 23, 43, 50, 63, 83}, 103},
		{"another interval after three strays", []float64{3, 23, 43, 63, 83, 88, 93, 98}, 103},
	} {
		c := learned(x.times...)
		if due := c.in(0); math.Abs(due-x.due) > 0.01 {
			t.Errorf("%s: the next spell is due at %v, want %v", x.name, due, x.due)
		}
	}
	if c := learned(3, 23, 43, 50); c.from != 43 || c.strays != 1 || c.last != 50 {
		t.Errorf("a stray spell leaves %+v", c)
	}
	if c := learned(3, 23, 43, 103); c.misses != 0 || c.strays != 0 {
		t.Errorf("two spells that were missed leave %+v", c)
	}
	if c := learned(3, 23, 43, 63, 83); c.hits < 2 || c.misses != 0 || c.count != 4 || c.odds() < 0.8 {
		t.Errorf("four intervals leave %+v", c)
	}
}

// Where intervals are steady, a spell that was seen a little late moves the next one less than where they are not.
func TestClueSmooths(t *testing.T) {
	steady, unsteady := learned(0, 20.2, 39.9, 60.1, 80, 100.6), learned(0, 20, 43, 60, 83, 103.6)
	if by := steady.in(0) - 120; by < 0.01 || by > 0.45 {
		t.Errorf("a spell .6 late moves the next by %v", by)
	}
	if trust := unsteady.from - 100; trust < 2.5 {
		t.Errorf("where intervals differ by 3, one .6 late counts from %v", unsteady.from)
	}
}

// The chance by its definition: that of a logistic lag to end in the round, given that it has not ended before, if the clue holds.
func TestChanceByItsDefinition(t *testing.T) {
	c := learned(0, 20, 41, 60, 80)
	scale := 0.55 * c.spread(1)
	past := func(at float64) float64 { return 1 / (1 + math.Exp((c.from+c.lag-at)/scale)) } // share of lags that are over
	for now := 82.0; now < 110; now++ {
		holds := (c.hits + 0.5) / (c.hits + c.misses + 1)
		holds = holds * (1 - past(now)) / (holds*(1-past(now)) + 1 - holds) // given that nothing came until now
		want := holds * (past(now+1) - past(now)) / (1 - past(now))
		if got := c.chance(now, 1); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v: %v, want %v", now, got, want)
		}
	}
	if early, due, late := c.chance(85, 1), c.chance(99.5, 1), c.chance(112, 1); early > 0.001 || due < 0.2 || late > 0.001 {
		t.Errorf("chances of %v, %v and %v: long before, when it is due, long after", early, due, late)
	}
	if young := learned(0, 20); young.chance(19.5, 1) != 0 {
		t.Error("a clue is believed before a spell has come as foreseen")
	}
}

func TestClueOverdue(t *testing.T) {
	c := learned(0, 20, 40, 60)
	if end := 80 + reach*c.spread(1) + toldAfter; c.overdue(end-0.01, 1) || !c.overdue(end+0.01, 1) {
		t.Errorf("spread %v: overdue at %v: %v", c.spread(1), end-0.01, c.overdue(end-0.01, 1))
	}
	none := clue{}
	if none.overdue(1e9, 1) {
		t.Error("a clue without an event is overdue")
	}
}

func TestClueJudges(t *testing.T) {
	var c clue
	c.judge(1, 0, 0.5)
	c.judge(1, 1, 0.5)
	if c.hits != 1.25 || c.misses != 1 || c.odds() != 1.75/3.25 {
		t.Errorf("%v hits, %v misses, odds %v", c.hits, c.misses, c.odds())
	}
}
