package agent

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// swapping runs two nodes without profiles, of 0.1 s and 0.01 or 0.04 s a sample, that exchange their speeds after 60 rounds.
type swapping struct {
	rng   *rand.Rand
	kind  string
	round int
	waits []float64
}

func (*swapping) Present() []bool { return []bool{true, true} }

func (s *swapping) Round(_ context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r := &cluster.Report{Round: s.round, Nodes: make([]cluster.NodeReport, 2)}
	speeds := []float64{0.01, 0.04}
	if s.round >= 60 {
		speeds[0], speeds[1] = speeds[1], speeds[0]
	}
	wait := 0.0
	for i, b := range plan.Sizes {
		if b == 0 {
			continue
		}
		t := 0.1 + speeds[i]*float64(b)
		switch s.kind {
		case "additive":
			t += 0.1 * s.rng.ExpFloat64()
		case "heavy":
			if s.rng.Float64() < 0.1 {
				t *= 1 + 0.3*s.rng.ExpFloat64()
			}
			fallthrough
		default:
			t *= 1 + 0.03*s.rng.NormFloat64()
		}
		r.Nodes[i] = cluster.NodeReport{Status: cluster.In, Size: b, Samples: b, Seconds: t, Age: t}
		r.Accepted += b
		wait = max(wait, t)
	}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Size > 0 {
			n.Idle = wait - n.Seconds
		}
	}
	r.Wait, r.Counted = time.Duration(wait*1e9), float64(r.Accepted)
	s.round++
	s.waits = append(s.waits, wait)
	return r, nil
}

// late hands a policy every report so many rounds after its round; sizes stay until the first one.
type late struct {
	Policy
	by   int
	held []*cluster.Report
}

func (l *late) Decide(r *cluster.Report, present []bool, plan *cluster.Plan) error {
	if r == nil {
		return l.Policy.Decide(nil, present, plan)
	}
	l.held = append(l.held, r)
	if len(l.held) <= l.by {
		return nil
	}
	r, l.held = l.held[0], l.held[1:]
	return l.Policy.Decide(r, present, plan)
}

// Two nodes without profiles exchange their speeds, 1 and 4. From 40 rounds later on, no round has the old
// split, however noisy the times are and however late the reports come; the mean time is near the best split's.
func TestNodesThatExchangeTheirSpeeds(t *testing.T) {
	const best = 0.1 + 0.01*80 // seconds, without noise
	for kind, least := range map[string]float64{"noise": 0.97, "heavy": 0.88, "additive": 0.83} {
		for _, lag := range []int{0, 1, 4} {
			for name, policy := range map[string]func(c *cluster.Cluster) Policy{
				"agent": func(c *cluster.Cluster) Policy { return embeddedPolicy(t).NewAgent(c, [4]float64{1}) },
				"model": func(c *cluster.Cluster) Policy { return NewModel(c) },
			} {
				const seeds = 40
				mean, worst := 0.0, math.Inf(1)
				for seed := range uint64(seeds) {
					c := &cluster.Cluster{Workload: "w", GlobalBatch: 100, Nodes: []cluster.Node{{Name: "a", Limit: profile.NoLimit}, {Name: "b", Limit: profile.NoLimit}}}
					runner := &swapping{rng: rand.New(rand.NewPCG(seed, 9)), kind: kind}
					ctl := Control{Cluster: c, Runner: runner, Policy: &late{Policy: policy(c), by: lag}}
					for range 160 {
						if _, err := ctl.Round(context.Background()); err != nil {
							t.Fatal(err)
						}
					}
					took := 0.0
					for _, w := range runner.waits[100:] {
						took += w / 60
					}
					mean += best / took / seeds
					worst = min(worst, best/took)
				}
				if worst < 0.6 || mean < least {
					t.Errorf("%s, reports %d rounds late, %s: %.3f of the best split in the mean, %.3f at worst", kind, lag, name, mean, worst)
				}
			}
		}
	}
}
