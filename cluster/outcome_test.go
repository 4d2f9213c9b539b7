package cluster

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawDeliveries(t *rapid.T) []Delivery {
	var work []Delivery
	apart := 1e-6 // no two arrivals at the same moment
	seconds := func(name string) float64 {
		apart *= 1.7
		return float64(rapid.IntRange(1, 3000).Draw(t, name))/1000 + math.Mod(apart, 1e-3)
	}
	for range rapid.IntRange(1, 12).Draw(t, "nodes") {
		w := Delivery{At: seconds("at"), Size: rapid.IntRange(1, 50).Draw(t, "size")}
		w.Took = w.At
		if rapid.IntRange(0, 2).Draw(t, "older") == 0 {
			w.Behind = rapid.IntRange(1, 3).Draw(t, "behind")
			w.Took += seconds("before")
			w.NextTook, w.NextSize = seconds("next"), rapid.IntRange(1, 50).Draw(t, "next size")
			w.NextAt = w.At + w.NextTook
		}
		work = append(work, w)
	}
	return work
}

// The closed form says what the round rule does when it is fed event by event.
func TestOutcomesByTheRoundRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		work := drawDeliveries(t)
		rule := rapid.SampledFrom(Rules).Draw(t, "rule")
		type arrival struct {
			at    time.Duration
			model time.Duration
			size  int
			back  int
		}
		ns := func(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
		var arrivals []arrival
		const opened = time.Hour
		for _, w := range work {
			arrivals = append(arrivals, arrival{opened + ns(w.At), opened - time.Duration(w.Behind)*time.Second, w.Size, w.Behind})
			if w.NextSize > 0 {
				arrivals = append(arrivals, arrival{opened + ns(w.NextAt), opened, w.NextSize, 0})
			}
		}
		slices.SortStableFunc(arrivals, func(a, b arrival) int { return int(a.at - b.at) })
		round, counted := rule.Apply(Collect{}).open(opened, len(work)), 0.0
		for _, a := range arrivals {
			if over(&round, a.at) {
				break
			}
			if v := round.receive(a.at, a.model, a.back == 0); v == Fresh || v == Aged {
				counted += float64(a.size) * Credit(a.back)
			}
		}
		over(&round, math.MaxInt64)
		end, closed := round.end, round.closed
		var o Outcomes
		o.Set(work)
		got := o.Under(rule)
		if !closed || math.Abs(got.Wait-(end-opened).Seconds()) > 1e-8 {
			t.Fatalf("closes after %v s, the round rule after %v (%v)", got.Wait, (end - opened).Seconds(), closed)
		}
		if math.Abs(got.Counted-counted) > 1e-9 {
			t.Fatalf("counts %v, the round rule %v", got.Counted, counted)
		}
		// Waiting longer counts no less, and leaves less behind.
		all := o.Under(Rule{Quorum: 1})
		if got.Wait > all.Wait || got.Counted > all.Counted+1e-9 || all.Late > 0 || all.Debt > 0 || got.Idle < 0 {
			t.Fatalf("%+v under %v, waiting for all %+v", got, rule, all)
		}
	})
}

// Outcomes do not depend on earlier calls: every rule has the same outcome alone and in any order of rules.
func TestOutcomesOfAllRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		work := drawDeliveries(t)
		var o Outcomes
		o.Set(work)
		for range 40 {
			rule := rapid.SampledFrom(Rules).Draw(t, "rule")
			var alone Outcomes
			alone.Set(work)
			if got, want := o.Under(rule), alone.Under(rule); got != want {
				t.Fatalf("%v: %+v, alone %+v", rule, got, want)
			}
		}
	})
}

func TestOutcomeByHand(t *testing.T) {
	var o Outcomes
	p := Power{Idle: 50, Busy: 200}
	o.Set([]Delivery{
		{At: 1, Took: 1, Size: 10, Power: p}, {At: 1.2, Took: 1.2, Size: 12, Power: p}, {At: 2, Took: 2, Size: 20, Power: p},
		{At: 0.5, Took: 1.5, Size: 8, Behind: 1, NextAt: 2.5, NextTook: 2, NextSize: 9, Power: p},
	})
	// Two of four are in at 1.2, and 0.12 later the round closes: the third is late by
	// 0.68, the fourth has delivered its old work and is late with the new by 1.18.
	got := o.Under(Rule{Quorum: 0.5, Grace: 0.1})
	want := Outcome{Wait: 1.32, Counted: 10 + 12 + 8*0.5, Later: 29 * 0.5, Debt: 20*0.68/2 + 9*1.18/2, Late: 29, Idle: 0.32 + 0.12, Joules: 200*(1+1.2+2+2.5) + 50*(0.32+0.12)}
	for _, x := range [][2]float64{{got.Wait, want.Wait}, {got.Counted, want.Counted}, {got.Later, want.Later}, {got.Debt, want.Debt}, {got.Late, want.Late}, {got.Idle, want.Idle}, {got.Joules, want.Joules}} {
		if math.Abs(x[0]-x[1]) > 1e-9 {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	}
	var work []Delivery
	for _, w := range o.work {
		w.Power = Power{}
		work = append(work, w)
	}
	o.Set(work) // the same without power
	want.Joules = 0
	if again := o.Under(Rule{Quorum: 0.5, Grace: 0.1}); math.Abs(again.Idle-want.Idle) > 1e-9 || math.Abs(again.Counted-want.Counted) > 1e-9 || again.Joules != 0 || again.Late != want.Late {
		t.Errorf("without power %+v\nwant %+v", again, want)
	}
	o.Set(nil)
	if got := o.Under(Rule{Quorum: 1}); got != (Outcome{}) {
		t.Errorf("nobody there: %+v", got)
	}
}

func TestChoices(t *testing.T) {
	for _, x := range []struct {
		c    Choices
		want []Rule
	}{
		{Choices{}, nil},
		{Choices{Quorum: []float64{1}}, []Rule{{Quorum: 1}}},
		{Choices{Quorum: []float64{0.8, 1}}, []Rule{{0.8, 0}, {1, 0}}},
		{Choices{Quorum: []float64{0.5, 0.9}, Grace: []float64{0.1, 0.2}}, []Rule{{0.5, 0.1}, {0.5, 0.2}, {0.9, 0.1}, {0.9, 0.2}}},
	} {
		var got []Rule
		for _, i := range x.c.Rules() {
			got = append(got, Rules[i])
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%+v: %v, want %v", x.c, got, x.want)
		}
	}
	fixed := Collect{Quorum: Quorum{Count: 3}, Grace: time.Second, MaxStaleness: time.Minute, Timeout: time.Hour}
	if got := (Rule{0.8, 0.1}).Apply(fixed); got != (Collect{Quorum: Quorum{Share: 0.8}, GraceShare: 0.1, MaxStaleness: time.Minute, Timeout: time.Hour}) {
		t.Errorf("%+v", got)
	}
}

// A node that delivers its old work and this round's is idle from the latter on.
func TestOutcomeIdleAfterOlderWork(t *testing.T) {
	var o Outcomes
	p := Power{Idle: 10, Busy: 100}
	o.Set([]Delivery{
		{At: 0.5, Took: 1.5, Size: 8, Behind: 1, NextAt: 2, NextTook: 1.5, NextSize: 9, Power: p},
		{At: 5, Took: 5, Size: 20, Power: p},
	})
	got := o.Under(Rule{Quorum: 1})
	want := Outcome{Wait: 5, Counted: 9 + 20 + 4, Idle: 3, Joules: 2*100 + 3*10 + 5*100}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (Outcome{Joules: 12, Counted: 3, Later: 1}).PerSample(); got != 3 {
		t.Errorf("%v J per sample", got)
	}
}
