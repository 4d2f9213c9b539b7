package agent

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// The factor of an automatic deadline follows the samples that came in, by hand.
func TestDeadlineFollowsTheSamples(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	c.Collect.AutoDeadline = true
	plan := func() *cluster.Plan {
		return &cluster.Plan{Sizes: []int{15, 15}, Collect: c.Collect, Finish: 2}
	}
	var d deadline
	p := plan()
	if d.set(c, p); p.Collect.Deadline != 2*time.Second {
		t.Errorf("first deadline %v", p.Collect.Deadline)
	}
	// 18 and 22 samples for 30: a third too many. A node that was lost does not count.
	in := func(n int) cluster.NodeReport { return cluster.NodeReport{Status: cluster.In, Size: n} }
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(18), in(22)}}, p)
	want := math.Exp(-0.1 / 3)
	p = plan()
	if d.set(c, p); math.Abs(p.Collect.Deadline.Seconds()-2*want) > 1e-6 {
		t.Errorf("deadline %v, want %v s", p.Collect.Deadline, 2*want)
	}
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(15), {Status: cluster.Lost, Size: 3}}}, p)
	if math.Abs(d.factor-want) > 1e-12 {
		t.Errorf("factor %v, want %v", d.factor, want)
	}
	// Rounds of half and of one and a half times the shares are right in the mean.
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(8), in(7)}}, p)
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(23), in(22)}}, p)
	if math.Abs(d.factor/want-1) > 1e-12 {
		t.Errorf("factor %v after rounds of half and of one and a half, want %v", d.factor, want)
	}
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(1000), in(1000)}}, p)
	if d.factor != 1/deadlineMost {
		t.Errorf("factor %v has no lower bound", d.factor)
	}
	for range 1000 {
		d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(1), in(1)}}, p)
	}
	if d.factor != deadlineMost {
		t.Errorf("factor %v has no bound", d.factor)
	}
	// A share of the finish time does not move; a fixed time stays; where the policy
	// predicts nothing, the profiles do.
	p = plan()
	p.Collect = cluster.Collect{DeadlineShare: 1.5}
	if d.set(c, p); p.Collect.Deadline != 3*time.Second {
		t.Error(p.Collect.Deadline)
	}
	p.Collect = cluster.Collect{Deadline: time.Minute}
	if d.set(c, p); p.Collect.Deadline != time.Minute {
		t.Error(p.Collect.Deadline)
	}
	p = plan()
	p.Collect, p.Finish = cluster.Collect{DeadlineShare: 1}, 0
	if d.set(c, p); math.Abs(p.Collect.Deadline.Seconds()-c.Nodes[0].Finish(c.Nominal()[0], 15)) > 1e-8 {
		t.Error(p.Collect.Deadline)
	}
	// A node without a share does not count, nor does a round without samples or shares.
	far := *c
	far.Nodes = slices.Clone(c.Nodes)
	far.Nodes[1].Network = 100
	p = plan()
	p.Sizes, p.Collect, p.Finish, p.Perf = []int{15, 0}, cluster.Collect{DeadlineShare: 1}, 0, far.Nominal()
	if d.set(&far, p); math.Abs(p.Collect.Deadline.Seconds()-c.Nodes[0].Finish(c.Nominal()[0], 15)) > 1e-8 {
		t.Error(p.Collect.Deadline)
	}
	before := 2.0
	d.factor = before
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{in(0), in(0)}}, plan())
	d.observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.Lost}, in(5)}}, p)
	if d.factor != before {
		t.Errorf("factor %v, was %v", d.factor, before)
	}
	p = plan()
	p.Collect = cluster.Collect{}
	if d.set(c, p); p.Collect.Deadline != 0 {
		t.Error(p.Collect.Deadline)
	}
}

// However rounds scatter, and whatever it takes to begin with, their mean is the batch: by what the factor has moved, over
// the rate and the rounds.
func TestDeadlineHoldsTheMean(t *testing.T) {
	const rounds = 50_000
	rng := rand.New(rand.NewPCG(1, 2))
	for _, needed := range []float64{0.6, 1, 2} {
		d, sum := deadline{factor: 1}, 0.0
		for range rounds {
			x := d.factor / needed * 1.3
			if rng.IntN(10) < 3 { // a burst
				x *= 0.3 / 1.3
			}
			size := int(math.Round(1e6 * x))
			sum += float64(size) / 1e6
			d.observe(&cluster.Report{Nodes: []cluster.NodeReport{{Status: cluster.In, Size: size}}}, &cluster.Plan{Sizes: []int{1e6}})
		}
		want := 1 - math.Log(d.factor)/deadlineRate/rounds
		if mean := sum / rounds; math.Abs(mean-want) > 1e-9 || math.Abs(mean-1) > 0.001 {
			t.Errorf("deadline %v times too short at first: rounds of %v times the batch in the mean, want %v", needed, mean, want)
		}
	}
}
