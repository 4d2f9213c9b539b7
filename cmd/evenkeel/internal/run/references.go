package run

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/lab/evaluation"
)

// history is the run of one policy, round by round.
type history struct {
	policy string
	knobs  string
	meter  evaluation.Meter
	rounds []moment
}

// moment is the state of a run after a round.
type moment struct {
	score    evaluation.Score // of the run so far
	accepted int              // samples so far
	wait     float64          // seconds of this round
	idle     float64          // share of the nodes' time in this round
	late     float64          // share of this round's accepted samples computed on an older model
	rule     cluster.Rule
}

func (c *history) add(round agent.Round, efficiency float64) *moment {
	var alone evaluation.Meter
	report := round.Report
	alone.Add(report, efficiency)
	c.meter.Add(report, efficiency)
	now := alone.Score()
	m := moment{score: c.meter.Score(), accepted: report.Accepted, wait: report.Wait.Seconds(), idle: now.Waiting, late: 1 - now.Freshness}
	m.rule = cluster.Rule{Quorum: cmp.Or(round.Plan.Collect.Quorum.Share, 1), Grace: round.Plan.Collect.GraceShare}
	if n := len(c.rounds); n > 0 {
		m.accepted += c.rounds[n-1].accepted
	}
	c.rounds = append(c.rounds, m)
	return &c.rounds[len(c.rounds)-1]
}

// References run beside the agent for the summary, under the same seed.
const (
	tunedReference   = "waterfill-margin"
	uniformReference = "uniform"
	oracleReference  = "oracle"
	waitingReference = "waterfill-margin, no deadline" // only where rounds end at a deadline: what the deadline brings
)

// reference is a policy to compare with.
type reference struct {
	evaluation.Spec
	title string           // the name of its history
	on    *cluster.Cluster // the cluster that it runs on
}

// named are the references of a run. Equal sizes stand for what trainers do by default, and
// that is to wait for whole shares.
func (s *setup) named() ([]reference, error) {
	specs, err := evaluation.Find([]string{uniformReference, oracleReference, tunedReference})
	if err != nil {
		return nil, err
	}
	var all []reference
	for _, p := range specs {
		all = append(all, reference{p, p.Name, s.given})
	}
	if s.given.Collect.Timed() {
		waits := s.given.Own()
		waits.Collect.Deadline, waits.Collect.DeadlineShare, waits.Collect.AutoDeadline, waits.Collect.Overtime = 0, 0, false, 0
		all[0].on = waits
		all = append(all, reference{all[2].Spec, waitingReference, waits})
		all[1].Deadline, all[2].Deadline = true, true // played, and tuned, with the deadline of the agent
	}
	return all, nil
}

// tuneBudget limits tuning to so many rounds of one node, which take a second or two: long
// runs and large clusters are tuned on fewer rounds.
const tuneBudget = 2_000_000

// references are the runs that the agent's run is compared with. They run in the
// background; err may be read once done is closed.
type references struct {
	done  chan struct{}
	err   error
	total int          // rounds of all references, those that they are tuned on included
	ahead atomic.Int64 // of these, how many are done

	mu        sync.Mutex
	histories []*history // those that are finished
}

// compare starts the references.
func (s *setup) compare(ctx context.Context) *references {
	r := &references{done: make(chan struct{})}
	named, err := s.named()
	for k := range named {
		r.total += s.rounds
		if points := named[k].Points(); points > 1 {
			config := s.tuning(points)
			r.total += points * config.TuneSeeds * config.Rounds
		}
	}
	go func() {
		defer close(r.done)
		for k := 0; k < len(named) && err == nil; k++ {
			err = r.run(ctx, s, &named[k])
		}
		r.err = err
	}()
	return r
}

// run tunes one reference on separate seeds and runs it on the seed of the run.
func (r *references) run(ctx context.Context, s *setup, p *reference) error {
	c := &history{policy: p.title}
	knob := 0
	if p.Points() > 1 {
		config, before := s.tuning(p.Points()), r.ahead.Load()
		config.Progressed = func(done, _ int) { r.ahead.Store(before + int64(done*config.Rounds)) }
		var err error
		if knob, err = evaluation.Tune(ctx, config, evaluation.Case{Name: s.name, Cluster: p.on, Weights: s.weights.Weights()}, s.conditions, &p.Spec); err != nil {
			return err
		}
		c.knobs = p.Text(knob)
	}
	weights, of := s.weights.Weights(), p.on.Own()
	simulator := sim.New(of, s.conditions.Conditions, s.seed)
	_, err := evaluation.Play(ctx, of, simulator, p.New(of, simulator, s.trained, weights, knob), s.rounds, nil, func(round agent.Round) {
		c.add(round, simulator.Efficiency(round.Report.Counted))
		r.ahead.Add(1)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.histories = append(r.histories, c)
	return err
}

// tuning is how a reference with so many points in its grid is tuned.
func (s *setup) tuning(points int) evaluation.Config {
	perRound := points * len(s.cluster.Nodes)
	rounds := min(s.rounds, max(tuneBudget/perRound, 1))
	return evaluation.Config{TuneSeeds: min(max(tuneBudget/(perRound*rounds), 1), 10), Rounds: rounds}
}

// stillAt is how often progress is logged without a terminal.
const stillAt = 10 * time.Second

// wait shows progress until the references are done.
func (r *references) wait(a *cli.App) {
	report, clear := a.Progress("running the references")
	defer clear()
	said := time.Now()
	for {
		select {
		case <-r.done:
			return
		case <-time.After(50 * time.Millisecond):
			done := int(r.ahead.Load())
			report(done, r.total)
			if time.Since(said) >= stillAt && !cli.IsTerminal(a.Errs) {
				said = time.Now()
				a.Log.Info().Msgf("running the references, which are equal sizes, the oracle and water-filling tuned for these conditions: %d of %d rounds", done, r.total)
			}
		}
	}
}

// at is the state of a reference after so many rounds, nil if it did not get there.
func (r *references) at(policy string, rounds int) (*history, *moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.histories {
		if c.policy == policy && len(c.rounds) >= rounds && rounds > 0 {
			return c, &c.rounds[rounds-1]
		}
	}
	return nil, nil
}
