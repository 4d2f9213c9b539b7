package evaluation

import (
	"context"
	"math"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
)

// Score is what a run of rounds achieved.
type Score struct {
	Goodput float64 `json:"goodput"` // counted samples per second x statistical efficiency
	Costs
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"` // simulated
}

// Costs are the measures of a run beside its goodput.
type Costs struct {
	Waiting     float64 `json:"waiting"`          // share of the nodes' time spent idle, 0..1
	Freshness   float64 `json:"freshness"`        // share of accepted samples computed on the round's own model, 0..1
	Energy      float64 `json:"energy,omitempty"` // joules per counted sample of the nodes whose power is known; 0: no power is known, or nothing was accepted
	SamplesMean float64 `json:"samples_mean"`     // of the samples accepted in a round, over the global batch
	SamplesSD   float64 `json:"samples_sd"`       // their standard deviation
	LeftOut     float64 `json:"left_out"`         // fraction of the nodes present that had no share of a round, on average
}

// add adds o, divided by n.
func (c *Costs) add(o Costs, n int) {
	c.Waiting += o.Waiting / float64(n)
	c.Freshness += o.Freshness / float64(n)
	c.Energy += o.Energy / float64(n)
	c.SamplesMean += o.SamplesMean / float64(n)
	c.SamplesSD += o.SamplesSD / float64(n)
	c.LeftOut += o.LeftOut / float64(n)
}

// Meter adds up a Score round by round.
type Meter struct {
	seconds, effective, idle, nodeTime, accepted, aged float64
	joules, powered                                    float64 // energy and counted samples of the nodes whose power is known
	samples, squares                                   float64 // accepted, over the global batch
	present, leftOut                                   float64 // nodes
	rounds                                             int
}

// plan counts the nodes present and those without a share, and adds the accepted samples, over
// the global batch.
func (m *Meter) plan(present []bool, plan *cluster.Plan, samples float64) {
	for i, here := range present {
		if here {
			m.present++
			if plan.Sizes[i] == 0 {
				m.leftOut++
			}
		}
	}
	m.samples += samples
	m.squares += samples * samples
}

// Add adds a round with its statistical efficiency.
func (m *Meter) Add(report *cluster.Report, efficiency float64) {
	wait := report.Wait.Seconds()
	m.rounds++
	m.seconds += wait
	m.effective += report.Counted * efficiency
	m.accepted += float64(report.Accepted)
	for i := range report.Nodes {
		r := &report.Nodes[i]
		if r.Status == cluster.Absent {
			continue
		}
		m.nodeTime += wait
		m.idle += min(r.Idle, wait)
		m.aged += float64(r.Aged)
		if r.Joules > 0 {
			m.joules += r.Joules
			m.powered += float64(r.Samples-r.Aged) + float64(r.Aged)*cluster.Credit(max(r.Behind, 1))
		}
	}
}

// Score returns the score of the rounds so far.
func (m *Meter) Score() Score {
	s := Score{Rounds: m.rounds, Seconds: m.seconds, Costs: Costs{Freshness: 1}}
	if m.seconds > 0 {
		s.Goodput = m.effective / m.seconds
	}
	if m.nodeTime > 0 {
		s.Waiting = m.idle / m.nodeTime
	}
	if m.accepted > 0 {
		s.Freshness = 1 - m.aged/m.accepted
	}
	if n := float64(m.rounds); n > 0 {
		s.SamplesMean = m.samples / n
		s.SamplesSD = math.Sqrt(max(m.squares/n-s.SamplesMean*s.SamplesMean, 0))
	}
	if m.present > 0 {
		s.LeftOut = m.leftOut / m.present
	}
	if m.powered > 0 {
		s.Energy = m.joules / m.powered
	}
	return s
}

// Play runs a policy on a simulated cluster. It calls each, if not nil, after every round,
// and measures decisions if there is a clock.
func Play(ctx context.Context, c *cluster.Cluster, s *sim.Simulator, p agent.Policy, rounds int, clock func() time.Time, each func(agent.Round)) (Score, error) {
	var m Meter
	ctl := agent.Control{Cluster: c, Runner: s, Policy: p, Clock: clock}
	var present []bool
	for range rounds {
		present = append(present[:0], s.Present()...)
		r, err := ctl.Round(ctx)
		if err != nil {
			return Score{}, err
		}
		m.plan(present, &r.Plan, float64(r.Report.Accepted)/float64(c.GlobalBatch))
		m.Add(r.Report, s.Efficiency(r.Report.Counted))
		if each != nil {
			each(r)
		}
	}
	return m.Score(), nil
}
