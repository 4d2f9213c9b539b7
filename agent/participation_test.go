package agent

import (
	"context"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// scripted is a runner whose nodes take slow[i] times what the profile of agenttest.Lines
// says, half a second and a tenth per sample; negative: the gradient never comes.
type scripted struct {
	slow  []float64
	plans [][]int
}

func (s *scripted) Present() []bool {
	all := make([]bool, len(s.slow))
	for i := range all {
		all[i] = true
	}
	return all
}

func (s *scripted) Round(_ context.Context, plan cluster.Plan) (*cluster.Report, error) {
	s.plans = append(s.plans, slices.Clone(plan.Sizes))
	r := &cluster.Report{Nodes: make([]cluster.NodeReport, len(s.slow))}
	for i, b := range plan.Sizes {
		n := &r.Nodes[i]
		took := s.slow[i] * (0.5 + 0.1*float64(b))
		switch {
		case b == 0:
			continue
		case took < 0:
			n.Status, took = cluster.Lost, 30
		default:
			*n = cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Seconds: took}
			r.Accepted += b
		}
		r.Wait = max(r.Wait, time.Duration(took*1e9))
	}
	return r, nil
}

// tried are the rounds in which node i had a share.
func (s *scripted) tried(i int) []int {
	var rounds []int
	for k, sizes := range s.plans {
		if sizes[i] > 0 {
			rounds = append(rounds, k)
		}
	}
	return rounds
}

func play(t *testing.T, s *scripted, c *cluster.Cluster, p Policy, rounds int) *Control {
	t.Helper()
	ctl := &Control{Cluster: c, Runner: s, Policy: p}
	for range rounds {
		if _, err := ctl.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, b := range s.plans[len(s.plans)-1] {
			sum += b
		}
		if sum != c.GlobalBatch {
			t.Fatalf("%v sums to %d", s.plans[len(s.plans)-1], sum)
		}
	}
	return ctl
}

// A mute node is left out after the first loss and tried again with its least share: without any accepted gradient
// after thirty times the loss's cost, nineteen rounds here.
func TestMuteNode(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	s := &scripted{slow: []float64{1, 1, -1}}
	ctl := play(t, s, c, NewModel(c), 1100)
	if got := s.tried(2); !slices.Equal(got, []int{0, 570, 1018}) {
		t.Errorf("tried in rounds %v", got)
	}
	if ctl.LeftOut(2) != Silent || ctl.LeftOut(0) != TakesPart || ctl.LeftOut(2).String() != "silent" {
		t.Error(ctl.LeftOut(2))
	}
	if least := s.plans[570][2]; least != 1 {
		t.Errorf("tried with %d samples", least)
	}
	s.slow[2] = 1
	play := ctl // it comes back
	for range 1100 {
		if _, err := play.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ctl.LeftOut(2) != TakesPart || s.plans[len(s.plans)-1][2] < 8 {
		t.Errorf("it is back, but %v, %v", ctl.LeftOut(2), s.plans[len(s.plans)-1])
	}
	s.slow[2] = -1 // and goes mute again
	before := len(s.tried(2))
	for range 1000 {
		if _, err := ctl.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(s.tried(2)) - before; got > 3 {
		t.Errorf("mute again, it had work in %d rounds", got)
	}
}

// A node that has become fifty times slower is left out; the time that trials cost is
// spread out. When it has recovered, a trial finds out.
func TestSlowNodeIsLeftOutAndComesBack(t *testing.T) {
	c := agenttest.Lines(t, 8, 0.1, 0.1, 0.1)
	s := &scripted{slow: []float64{1, 1, 50}}
	ctl := play(t, s, c, NewModel(c), 400)
	rounds := s.tried(2)
	if ctl.LeftOut(2) != TooSlow || len(rounds) > 5 {
		t.Errorf("%v, has work in rounds %v", ctl.LeftOut(2), rounds)
	}
	lost := 0.0
	for _, k := range rounds[1:] {
		lost += 50*(0.5+0.1*float64(s.plans[k][2])) - 0.9
	}
	if lost > 0.03*400*0.9 {
		t.Errorf("trials cost %v s of %v", lost, 400*0.9)
	}
	s.slow[2] = 1
	for range 1100 {
		if _, err := ctl.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if ctl.LeftOut(2) != TakesPart || s.plans[len(s.plans)-1][2] < 2 {
		t.Errorf("it has recovered, but %v, %v, tried %v", ctl.LeftOut(2), s.plans[len(s.plans)-1], s.tried(2))
	}
}

// If all nodes are silent, all get work.
func TestAllSilent(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	s := &scripted{slow: []float64{-1, -1}}
	play(t, s, c, NewModel(c), 5)
	if got := len(s.tried(0)); got != 5 {
		t.Errorf("had work in %d rounds of 5", got)
	}
}

// A node whose link is known to cost thousands of rounds is not tried at that price.
func TestFarNodeIsNotTried(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	c.Nodes[2].Network = 5000
	s := &scripted{slow: []float64{1, 1, 1}}
	ctl := play(t, s, c, NewModel(c), 3000)
	if got := s.tried(2); len(got) > 0 || ctl.LeftOut(2) != TooSlow {
		t.Errorf("tried in rounds %v, %v", got, ctl.LeftOut(2))
	}
}

// The cost of a trial decides when the next one comes, by hand.
func TestTrialsByTheirPrice(t *testing.T) {
	seen := func(finish float64, n partaker, r cluster.NodeReport) partaker {
		p := newParticipation(1)
		p.round, p.nodes[0] = 10, n
		p.observe(&cluster.Report{Wait: 40 * time.Second, Nodes: []cluster.NodeReport{r}}, p.round, finish)
		return p.nodes[0]
	}
	in := func(seconds float64) cluster.NodeReport {
		return cluster.NodeReport{Status: cluster.In, Size: 1, Seconds: seconds}
	}
	slow := partaker{why: TooSlow, wait: 8, tried: 10}
	for name, x := range map[string]struct {
		finish     float64
		node       partaker
		report     cluster.NodeReport
		wait, next int
	}{
		"in at once":                    {1, slow, in(1.01), 0, 11},
		"half as long again":            {1, slow, in(1.5), 24, 34},
		"thirty times as long":          {1, slow, in(30), 870, 880},
		"a hundred times":               {1, slow, in(101), 3000, 3010},
		"tried for long":                {1, partaker{why: TooSlow, wait: 800, tried: 10}, in(1.1), 1024, 1034},
		"nobody knows":                  {0, slow, in(5), 0, 11},
		"not on trial":                  {1, partaker{why: TooSlow, wait: 8, next: 9}, in(30), 8, 9},
		"never heard of, out of memory": {1, partaker{}, cluster.NodeReport{Status: cluster.Lost, OOM: true}, 0, 0},
		"away":                          {1, slow, cluster.NodeReport{}, 8, 0},
	} {
		if got := seen(x.finish, x.node, x.report); got.wait != x.wait || got.next != x.next {
			t.Errorf("%s: the next trial is in round %d, after %d; want %d and %d", name, got.next, got.wait, x.next, x.wait)
		}
	}
	// One that the allocation leaves out: by what it is believed to take for its least share.
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	for finish, want := range map[float64][2]int{0.1: {149, 151}, 0: {2, 2}} {
		p := newParticipation(2)
		p.round = 10
		plan := &cluster.Plan{Sizes: []int{30, 0}, Perf: c.Nominal(), Finish: finish}
		p.settle(c, []bool{true, true}, plan)
		if n := p.nodes[1]; n.why != TooSlow || n.next-10 < want[0] || n.next-10 > want[1] || plan.Sizes[1] != 0 {
			t.Errorf("finish %v: %v, next trial after %d rounds, want %v", finish, n.why, n.next-10, want)
		}
		p.settle(c, []bool{false, true}, plan)
		p.settle(c, []bool{false, false}, plan)
		if a, b := p.nodes[0].why, p.nodes[1].why; a != Away || b != TooSlow {
			t.Errorf("%v, %v of nodes that are away", a, b)
		}
	}
}
