package agent

import (
	"math"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// The time between trials costs within 5% of the least that any does, by a sum over trials.
func TestPatience(t *testing.T) {
	for _, worth := range []float64{0.1, 1, 10, 100, 1000} {
		for _, rate := range []float64{0.0005, 0.002, 0.01, 0.1, 1} {
			cost := func(every int) float64 {
				sum, missed := 0.0, 1.0 // chance that it is still silent when a trial comes
				for sum < 1e9 && missed > 1e-9 {
					sum += missed * float64(every)
					missed *= math.Exp(-rate * float64(every))
					sum += missed * worth
				}
				return sum
			}
			least := math.Inf(1)
			for every := 1; every <= longestWait; every++ {
				least = min(least, cost(every))
			}
			if got := patience(worth, rate); got < 1 || got > longestWait || cost(got) > 1.05*least {
				t.Errorf("a loss of %v rounds, rate %v: every %d rounds costs %v, the best %v", worth, rate, got, cost(got), least)
			}
		}
	}
}

// What a loss is worth, and at what rates nodes fall silent and come back, by hand.
func TestSilenceRates(t *testing.T) {
	p := newParticipation(4)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("a loss that cost nothing", p.worth(0), 0.05*4)
	near("before anything", p.falls(0), 3/(3/0.001))
	near("the same", p.returns(), 0.2/20)
	p.past[1] = past{share: 0.5, cost: 6, silences: silences{fell: 2, in: 100}}
	p.fleet = silences{fell: 4.8, back: 3.8, in: 800, out: 180}
	near("a loss of six rounds", p.worth(1), 12)
	near("a node's own rate", p.falls(1), (2.0+3)/(100+3/0.005))
	near("one that never did", p.falls(0), 3/(3/0.005))
	near("how often they are back", p.returns(), 0.02)
}

// What a round lost by waiting, in rounds of those that handed in.
func TestWaited(t *testing.T) {
	in := func(s float64) cluster.NodeReport { return cluster.NodeReport{Status: cluster.In, Seconds: s} }
	lost, late := cluster.NodeReport{Status: cluster.Lost}, cluster.NodeReport{Status: cluster.Late, Seconds: 9}
	for _, x := range []struct {
		nodes        []cluster.NodeReport
		finish, want float64
	}{
		{[]cluster.NodeReport{in(2), in(3), lost}, 1, 3},
		{[]cluster.NodeReport{in(2), late, lost}, 1, 5},
		{[]cluster.NodeReport{in(13), lost}, 1, 0},
		{[]cluster.NodeReport{lost, lost}, 4, 2},
		{[]cluster.NodeReport{lost, lost}, 0, 0},
	} {
		if got := waited(&cluster.Report{Wait: 12 * time.Second, Nodes: x.nodes}, x.finish); math.Abs(got-x.want) > 1e-12 {
			t.Errorf("%v: %v rounds, want %v", x.nodes, got, x.want)
		}
	}
}

// A node falls silent once, however many trials fail, and is back once; what it was worth decides whether it takes
// part again.
func TestFallAndReturn(t *testing.T) {
	p := newParticipation(2)
	report := func(s cluster.Status) *cluster.Report {
		return &cluster.Report{Wait: 11 * time.Second, Nodes: []cluster.NodeReport{{Status: cluster.In, Seconds: 1}, {Status: s, Size: 1, Seconds: 1}}}
	}
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	round := func(s cluster.Status) {
		p.among(c, []bool{true, true})
		p.observe(report(s), p.round, 1)
	}
	round(cluster.In)
	p.past[1].share = 0.5
	for k := range 3 {
		round(cluster.Lost)
		n, h := &p.nodes[1], &p.past[1]
		if n.why != Silent || n.since != 2 || n.lost != k+1 || h.fell != 1 || p.fleet.fell != 1 || h.cost != 10 || n.next-p.round != patience(20, 0.2/20) {
			t.Fatalf("loss %d: %+v, %+v", k, n, h)
		}
	}
	p.past[1].in, p.fleet.in = 5000, 5000
	round(cluster.In)
	if n, h := p.nodes[1], &p.past[1]; n != (partaker{known: true}) || h.back != 1 || p.fleet.back != 1 {
		t.Errorf("back: %+v, %+v", n, h)
	}
	// A loss costs twenty rounds of its share, so one fall in 20 rounds is too many.
	p.past[1].in, p.past[1].fell, p.fleet.fell, p.fleet.in = 100, 40, 40, 200
	round(cluster.Lost)
	for range 2 { // found there, and found there again
		round(cluster.In)
		if n := p.nodes[1]; n.why != Silent || n.next-p.round != flappingWait || n.lost != 0 || p.fleet.back != 2 {
			t.Errorf("falls silent too often: %+v, %+v", n, p.fleet)
		}
	}
	if allowed := p.among(c, []bool{true, true}); !allowed[0] || allowed[1] {
		t.Errorf("allowed %v", allowed)
	}
	round(cluster.Lost)
	if p.past[1].fell != 42 {
		t.Errorf("it fell silent %v times", p.past[1].fell)
	}
	round(cluster.In)
	if n := p.nodes[1]; n.why != Silent {
		t.Errorf("%+v", n)
	}
	// Where the others cannot hold the batch it takes part all the same.
	c.Nodes[0].Limit = 20
	c.SetEqualSteps(1)
	if allowed := p.among(c, []bool{true, false}); allowed[1] || p.nodes[1].why != Silent {
		t.Errorf("away, and allowed %v", allowed)
	}
	if allowed := p.among(c, []bool{true, true}); !allowed[1] || p.nodes[1].why != TakesPart {
		t.Errorf("allowed %v, %+v", allowed, p.nodes[1])
	}
}

// A node without an accepted gradient is tried later than others, and a restart does not bring it back.
func TestNeverHeard(t *testing.T) {
	for _, known := range []bool{false, true} {
		c := agenttest.Lines(t, 30, 0.1, 0.1)
		p := newParticipation(2)
		p.among(c, []bool{true, true})
		p.nodes[1].known = known
		p.observe(&cluster.Report{Wait: 11 * time.Second, Nodes: []cluster.NodeReport{{Status: cluster.In, Seconds: 1}, {Status: cluster.Lost}}}, p.round, 1)
		want := patience(20, 0.01)
		if !known {
			want = 300
		}
		if got := p.nodes[1].next - p.round; got != want {
			t.Errorf("known %v: tried after %d rounds, want %d", known, got, want)
		}
		took := 0 // round in which it takes part again
		for _, here := range []bool{true, false, true} {
			allowed := p.among(c, []bool{true, here})
			plan := &cluster.Plan{Sizes: []int{30, 0}}
			if allowed[1] {
				plan.Sizes, took = []int{15, 15}, p.round
			}
			p.settle(c, []bool{true, here}, plan)
		}
		if known != (took == 4) {
			t.Errorf("known %v: restarted in round 4, takes part in round %d", known, took)
		}
		if out := 3.0; p.fleet.in+p.fleet.out != 6-1 || known && p.past[1].out != out-2 || !known && p.past[1].out != out-1 {
			t.Errorf("known %v: %+v, %+v", known, p.past[1], p.fleet)
		}
		if !known {
			continue
		}
		// After a second loss, a restart changes nothing.
		p.observe(&cluster.Report{Wait: 11 * time.Second, Nodes: []cluster.NodeReport{{Status: cluster.In, Seconds: 1}, {Status: cluster.Lost}}}, p.round, 1)
		if n := p.nodes[1]; n.why != Silent || n.lost != 2 || p.past[1].fell != 2 {
			t.Errorf("lost again: %+v, %+v", n, p.past[1])
		}
		for _, here := range []bool{false, true} {
			if allowed := p.among(c, []bool{true, here}); allowed[1] {
				t.Error("takes part after a second restart")
			}
			p.settle(c, []bool{true, here}, &cluster.Plan{Sizes: []int{30, 0}})
		}
	}
}

// One that falls silent too often is left out after a restart too.
func TestFlappingRestart(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	p := newParticipation(2)
	p.nodes[1] = partaker{why: Silent, lost: 1, known: true, gone: true}
	p.past[1] = past{share: 0.5, cost: 10, silences: silences{fell: 40, in: 100}}
	p.fleet = silences{fell: 40, in: 200}
	if allowed := p.among(c, []bool{true, true}); allowed[1] || p.nodes[1].next != p.round+flappingWait || !p.nodes[1].flaps() {
		t.Errorf("%v, %+v", allowed, p.nodes[1])
	}
}
