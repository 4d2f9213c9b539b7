package agent

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// stepwise are seconds of a share that is worked off in micro-steps, each of which has an overhead: one after another.
func stepwise(share, full int, overhead, perSample, network float64) (seconds float64, steps int) {
	for seconds = network; share > 0; share -= full {
		seconds += overhead + perSample*float64(min(share, full))
		steps++
	}
	return seconds, steps
}

// The expected cost of a trial is the believed line's, or a mean micro-step of the newest measurement if that had several and is
// less. It is at least the true cost, unless the line predicts less.
func TestTrialIsOneMicroStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		full := rapid.IntRange(1, 64).Draw(t, "full")
		node := cluster.Node{Limit: full, Least: rapid.IntRange(1, full).Draw(t, "least"), Network: rapid.Float64Range(0, 1).Draw(t, "network")}
		share := rapid.IntRange(0, 10).Draw(t, "whole") * full
		if share += rapid.IntRange(node.Least, full).Draw(t, "rest"); !node.Takes(share) {
			t.Fatalf("share %d", share)
		}
		overhead, perSample := rapid.Float64Range(0, 1).Draw(t, "overhead"), rapid.Float64Range(0.001, 1).Draw(t, "perSample")
		seconds, steps := stepwise(share, full, overhead, perSample, node.Network)
		n := partaker{}
		believed := cluster.Performance{Overhead: rapid.Float64Range(0, 100).Draw(t, "believed"), PerSample: rapid.Float64Range(0, 1).Draw(t, "slope")}
		line := believed.Overhead + believed.PerSample*float64(node.Least)
		if steps > 1 {
			even := node
			even.Equal, n.took, n.steps = steps, seconds, float64(steps)
			if got, line := n.trial(&even, believed), believed.Overhead+believed.PerSample*float64(node.Least*steps); math.Abs(got-min(line, seconds)) > 1e-9*got {
				t.Fatalf("%d equal micro-steps: %v, want %v or %v", steps, got, line, seconds)
			}
			n = partaker{}
		}
		if got := n.trial(&node, believed); math.Abs(got-line) > 1e-12 {
			t.Fatalf("never measured: %v, want the line's %v", got, line)
		}
		n.took, n.steps = seconds, float64(steps)
		want := line
		if step := (seconds-node.Network)/float64(steps) + node.Network; steps > 1 && step < line {
			want = step
		}
		got := n.trial(&node, believed)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v, want %v", got, want)
		}
		if truth, _ := stepwise(node.Least, full, overhead, perSample, node.Network); got < min(truth, line)-1e-9 {
			t.Fatalf("%v, but a trial takes %v and the line says %v", got, truth, line)
		}
	})
}

// inSteps is a runner whose nodes work in micro-steps of which each has an overhead, slow(node, round) times as slow.
type inSteps struct {
	cluster *cluster.Cluster
	slow    func(node, round int) float64
	sizes   [][]int
}

func (s *inSteps) Present() []bool { return []bool{true, true, true} }

func (s *inSteps) Round(_ context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r := &cluster.Report{Nodes: make([]cluster.NodeReport, len(plan.Sizes))}
	for i, b := range plan.Sizes {
		if b == 0 {
			continue
		}
		seconds, k := stepwise(b, s.cluster.Nodes[i].Limit, 0.02, 0.01, 0)
		seconds *= s.slow(i, len(s.sizes))
		r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Steps: k, Seconds: seconds, Age: seconds}
		r.Wait = max(r.Wait, time.Duration(seconds*1e9))
		r.Accepted += b
	}
	s.sizes = append(s.sizes, append([]int(nil), plan.Sizes...))
	return r, nil
}

// A node without a profile that was measured in a slow spell: a trial costs a micro-step, not the overhead that the line
// suggests, so the node soon takes part again.
func TestMeasuredOnceInABurst(t *testing.T) {
	for _, x := range []struct {
		slower       float64
		lasts, until int // rounds
	}{{10, 1, 10}, {10, 4, 15}, {20, 1, 30}, {20, 4, 30}} {
		c := &cluster.Cluster{Workload: "w", GlobalBatch: 96, Nodes: []cluster.Node{{Name: "0", Limit: 4}, {Name: "1", Limit: 4}, {Name: "2", Limit: 4}}}
		s := &inSteps{cluster: c, slow: func(node, round int) float64 {
			if node == 2 && round < x.lasts {
				return x.slower
			}
			return 1
		}}
		ctl := &Control{Cluster: c, Runner: s, Policy: NewModel(c)}
		for range x.until {
			if _, err := ctl.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.sizes[x.until-1][2]; got < 24 || ctl.LeftOut(2) != TakesPart {
			t.Errorf("%+v: it has %d of 96 samples (%v): %v", x, got, ctl.LeftOut(2), s.sizes)
		}
	}
}

// One that stays so slow that its micro-step lasts as long as a round of the others costs little all the same.
func TestTrialsOfALastinglySlowNode(t *testing.T) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 96, Nodes: []cluster.Node{{Name: "0", Limit: 4}, {Name: "1", Limit: 4}, {Name: "2", Limit: 4}}}
	s := &inSteps{cluster: c, slow: func(node, _ int) float64 { return []float64{1, 1, 50}[node] }}
	ctl := &Control{Cluster: c, Runner: s, Policy: NewModel(c)}
	waited, rounds := 0.0, 0
	for k := range 400 {
		r, err := ctl.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if k > 0 {
			waited += r.Report.Wait.Seconds()
			rounds++
		}
	}
	without, _ := stepwise(48, 4, 0.02, 0.01, 0)
	if over := waited/(float64(rounds)*without) - 1; over > 0.03 {
		t.Errorf("%v of the time without the node", over)
	}
}

// The expected cost of a trial follows from the newest measurement, while a node takes part and after.
func TestNewestMicroStep(t *testing.T) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 16, Nodes: []cluster.Node{{Limit: 4}, {Limit: 4}}}
	p, all, plan := newParticipation(2), []bool{true, true}, &cluster.Plan{Sizes: []int{8, 8}}
	dear := cluster.Performance{Overhead: 100}
	for k, seconds := range []float64{6, 3, 12} {
		p.among(c, all)
		p.settle(c, all, plan)
		if k > 0 {
			if got := p.nodes[1].trial(&c.Nodes[1], dear); got != []float64{6, 3, 12}[k-1]/3 {
				t.Fatalf("round %d: a trial is thought to take %v", k, got)
			}
		}
		in := cluster.NodeReport{Status: cluster.In, Size: 8, Samples: 8, Steps: 3, Seconds: seconds}
		p.observe(&cluster.Report{Wait: time.Minute, Nodes: []cluster.NodeReport{in, in}}, p.round, 1)
		if got := p.nodes[1].trial(&c.Nodes[1], dear); got != seconds/3 {
			t.Fatalf("round %d: a trial is thought to take %v after %v s in 3 micro-steps", k, got, seconds)
		}
	}
}
