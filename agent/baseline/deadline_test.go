package baseline

import (
	"math"
	"slices"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// ended asks p after a round in which the nodes took so many seconds for sizes, and returns
// the plan that it makes.
func ended(t *testing.T, p agent.Policy, sizes []int, seconds ...float64) cluster.Plan {
	t.Helper()
	var report *cluster.Report
	if seconds != nil {
		report = agenttest.Measured(sizes, seconds...)
	}
	plan := cluster.Plan{Sizes: slices.Clone(sizes), Collect: cluster.Collect{AutoDeadline: true, Overtime: 0.5}}
	if err := p.Decide(report, nil, &plan); err != nil {
		t.Fatal(err)
	}
	return plan
}

// until holds a plan's deadline to seconds, and to how it ends.
func until(t *testing.T, plan cluster.Plan, seconds float64, whole bool) {
	t.Helper()
	c := plan.Collect
	if math.Abs(c.Deadline.Seconds()-seconds) > 1e-8 || c.Whole != whole || c.AutoDeadline {
		t.Fatalf("%+v, want %v s, whole %v", c, seconds, whole)
	}
}

// Three nodes take 0.5 s and 0.1 s a sample; 30 samples are 10 each, in 1.5 s.
func TestAnytimeByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	p := NewAnytime(c, 1.5, Steps{})
	// By the profiles, the rates are those of the whole batch: 30 / 3.5 a node.
	until(t, ended(t, p, make([]int, 3)), 1.5*30/(3*30/3.5), true)
	// All wait for the last, so the newest rates are 10/4, 5/4 and 10/4 a second, known for the
	// first time: 30 in 30/6.25 s.
	until(t, ended(t, p, []int{10, 5, 10}, 1, 2, 4), 1.5*30/6.25, true)
	// Then 10/4 from the second: its average moves by a tenth, to 1.375.
	until(t, ended(t, p, []int{10, 10, 10}, 2, 2, 4), 1.5*30/6.375, true)
	for range 30 {
		ended(t, p, []int{10, 10, 10}, 2, 2, 4)
	}
	a := ended(t, p, []int{10, 10, 10}, 2, 2, 4)
	b := ended(t, p, []int{10, 10, 10}, 9, 9, 9) // the time is fixed by now
	if a.Collect != b.Collect {
		t.Errorf("%+v, %+v", a.Collect, b.Collect)
	}
	cut := ended(t, NewAnytime(c, 1, Steps{Cut: true, Reserve: 0.04}), make([]int, 3))
	if cut.Collect.Whole || cut.Collect.Reserve != 0.04 || cut.Collect.Overtime != 0 {
		t.Errorf("%+v", cut.Collect)
	}
}

func TestExpectedTimeByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	p := NewExpectedTime(c, 0.5, Steps{})
	ended(t, p, make([]int, 3))
	until(t, ended(t, p, []int{10, 5, 10}, 1, 2, 4), 30/6.25, true)
	for range 40 { // always the newest rates
		ended(t, p, []int{10, 10, 10}, 5, 5, 5)
	}
	until(t, ended(t, p, []int{10, 10, 10}, 5, 5, 5), 5, true)
	// Without the first, the others take as long for all.
	plan := cluster.Plan{Sizes: make([]int, 3)}
	if err := p.Decide(nil, []bool{false, true, true}, &plan); err != nil {
		t.Fatal(err)
	}
	until(t, plan, 30/4.0, true)
}

func TestFilledDeadline(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	plan := ended(t, NewFilledDeadline(c, 1.1, Steps{Cut: true, Reserve: 0.01}, WaterFill{Gain: 1}), make([]int, 3))
	until(t, plan, 1.1*1.5, false)
	plan = ended(t, NewFilledDeadline(c, 0, Steps{}, WaterFill{Gain: 1}), make([]int, 3))
	if !plan.Collect.AutoDeadline || plan.Collect.Deadline != 0 || !plan.Collect.Whole {
		t.Errorf("%+v", plan.Collect)
	}
}
