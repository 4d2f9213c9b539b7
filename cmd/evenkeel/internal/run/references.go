package run

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/evaluation"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
)

// course is how a run of one policy went, round by round.
type course struct {
	policy string
	knobs  string
	meter  evaluation.Meter
	rounds []moment
}

// moment is where a run stood after a round.
type moment struct {
	score    evaluation.Score // of the run so far
	accepted int              // samples so far
	wait     float64          // seconds of this round
	idle     float64          // share of the nodes' time in this round
	late     float64          // share of this round's accepted samples that are of an older model
	rule     cluster.Rule
}

func (c *course) add(round agent.Round, efficiency float64) *moment {
	var alone evaluation.Meter
	report := round.Report
	alone.Add(report, efficiency)
	c.meter.Add(report, efficiency)
	now := alone.Score()
	m := moment{score: c.meter.Score(), accepted: report.Accepted, wait: report.Wait.Seconds(), idle: now.Waiting, late: 1 - now.Freshness}
	m.rule = cluster.Rule{Quorum: round.Plan.Collect.Quorum.Share, Grace: round.Plan.Collect.GraceShare}
	if m.rule.Quorum == 0 {
		m.rule.Quorum = 1
	}
	if n := len(c.rounds); n > 0 {
		m.accepted += c.rounds[n-1].accepted
	}
	c.rounds = append(c.rounds, m)
	return &c.rounds[len(c.rounds)-1]
}

// samplesPerSecond counts accepted samples.
func (m *moment) samplesPerSecond() float64 {
	if m.score.Seconds == 0 {
		return 0
	}
	return float64(m.accepted) / m.score.Seconds
}

// References are run for the summary beside the agent, under the same seed.
const (
	tunedReference   = "waterfill-margin"
	uniformReference = "uniform"
	oracleReference  = "oracle"
)

// tuneBudget is how many rounds of one node tuning may simulate, a second or two: a long
// run or a large cluster is tuned on fewer rounds.
const tuneBudget = 2_000_000

// references are the runs that the agent's is compared with. They go on in the
// background; err is safe to read once done is closed.
type references struct {
	done  chan struct{}
	err   error
	tuned atomic.Int64 // runs of tuning done and, above the lower half, their total

	mu      sync.Mutex
	courses []*course // those that are over
}

// compare starts the references.
func (s *setup) compare(ctx context.Context) *references {
	r := &references{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		specs, err := evaluation.Find([]string{uniformReference, oracleReference, tunedReference})
		for k := 0; k < len(specs) && err == nil; k++ {
			err = r.run(ctx, s, &specs[k])
		}
		r.err = err
	}()
	return r
}

// run tunes one reference on seeds of their own and plays it on the run's.
func (r *references) run(ctx context.Context, s *setup, p *evaluation.Spec) error {
	c := &course{policy: p.Name}
	knob := 0
	if p.Points() > 1 {
		var err error
		if knob, err = r.tune(ctx, s, p); err != nil {
			return err
		}
		c.knobs = p.Text(knob)
	}
	weights := s.weights.Weights()
	simulator := sim.New(s.cluster, s.conditions.Conditions, s.seed)
	_, err := evaluation.Play(ctx, s.cluster, simulator, p.New(s.cluster, simulator, s.trained, weights, knob), s.rounds, nil, func(round agent.Round) {
		c.add(round, simulator.Efficiency(round.Report.Counted))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.courses = append(r.courses, c)
	return err
}

func (r *references) tune(ctx context.Context, s *setup, p *evaluation.Spec) (int, error) {
	perRound := p.Points() * len(s.cluster.Nodes)
	rounds := min(s.rounds, max(tuneBudget/perRound, 1))
	config := evaluation.Config{
		TuneSeeds: min(max(tuneBudget/(perRound*rounds), 1), 10), Rounds: rounds,
		Progressed: func(done, total int) { r.tuned.Store(int64(total)<<32 | int64(done)) },
	}
	return evaluation.Tune(ctx, config, evaluation.Case{Name: s.name, Cluster: s.cluster, Weights: s.weights.Weights()}, s.conditions, p)
}

// wait shows progress until the references are done.
func (r *references) wait(a *cli.App) {
	tell, clear := a.Progress("tuning water-filling")
	defer clear()
	for {
		select {
		case <-r.done:
			return
		case <-tick():
			if v := r.tuned.Load(); v != 0 {
				tell(int(v&0xffffffff), int(v>>32))
			}
		}
	}
}

// at is the reference's standing after so many rounds; nil if it did not get there.
func (r *references) at(policy string, rounds int) (*course, *moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.courses {
		if c.policy == policy && len(c.rounds) >= rounds && rounds > 0 {
			return c, &c.rounds[rounds-1]
		}
	}
	return nil, nil
}
