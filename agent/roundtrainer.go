package agent

import (
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// roundTrainer learns what the moving averages of the rules' values miss: a network per
// round whose actions are the rules, whose reward is a rule's value in the round just
// played above its average (env.Step.Rules). Every round teaches several rules at once,
// the one played and others at random, as its work shows what each would have been worth.
type roundTrainer struct {
	replay    *ddqn.Replay
	learner   *ddqn.Learner
	actor     *ddqn.Actor
	low, high []float32
}

func (r *roundTrainer) init(config TrainConfig) error {
	r.low, r.high = make([]float32, env.RoundFeatures), make([]float32, env.RoundFeatures)
	spec := ddqn.Spec{Features: env.RoundFeatures, Actions: len(cluster.Rules), Objectives: env.Objectives, Hidden: config.Hidden}
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(config.Seed, 4)))
	if err != nil {
		return err
	}
	r.replay, err = ddqn.NewReplay(ddqn.ReplayConfig{Streams: config.Envs, Capacity: roundKeep, Group: trainGroup, Features: env.RoundFeatures, Objectives: env.Objectives})
	if err != nil {
		return err
	}
	r.learner, err = ddqn.NewLearner(ddqn.LearnerConfig{
		Batch: trainRows / trainGroup, Group: trainGroup, NStep: 1, Gamma: roundGamma,
		LearningRate: trainRate, DecayUpdates: config.sets() * config.Updates / roundUpdates, FinalRate: 0.02,
	}, net, rand.NewPCG(config.Seed, 5))
	r.actor = ddqn.NewActor(net)
	return err
}

// rule chooses the round's rule in a stream where it is free, and notes what was seen.
func (t *Trainer) rule(s *stream, random float64) {
	s.judged = s.judged[:0]
	allowed := s.env.Allowed()
	if len(allowed) == 0 {
		return
	}
	s.row = s.env.RoundRow(s.row)
	widen(t.rounds.low, t.rounds.high, s.row)
	s.values = t.rounds.actor.Q(s.values, s.row)
	s.rule = s.env.BestRule(s.values)
	if t.rng.Float64() < max(roundExplore, random) {
		s.rule = allowed[t.rng.IntN(len(allowed))]
	}
	s.env.SetRule(s.rule)
	p := s.seeRound(ddqn.Mid)
	if len(s.history) == 0 {
		p.Kind = ddqn.First
	}
	p.Actions = make([]int, trainGroup)
	for k := range p.Actions {
		p.Actions[k] = s.rule
		if k > 0 {
			p.Actions[k] = t.rng.IntN(len(cluster.Rules))
		}
	}
	p.Weights = weights32(s.weights)
	s.judged = append(s.judged, p)
}

// seeRound is the round's row, once for every rule that is taught.
func (s *stream) seeRound(kind ddqn.Kind) ddqn.Step {
	p := ddqn.Step{Kind: kind}
	for range trainGroup {
		p.Rows = append(p.Rows, s.row...)
	}
	return p
}

// judge notes what the rules were worth.
func (s *stream) judge(step env.Step) {
	if len(s.judged) == 0 {
		return
	}
	p := &s.judged[0]
	p.Rewards = make([]float32, trainGroup*env.Objectives)
	if len(step.Rules) > 0 {
		for k, a := range p.Actions {
			copy(p.Rewards[k*env.Objectives:], step.Rules[a*env.Objectives:][:env.Objectives])
		}
	}
	if step.Kind == env.Last {
		s.row = s.env.RoundRow(s.row)
		last := s.seeRound(ddqn.Last)
		last.Terminal = step.Terminal
		s.judged = append(s.judged, last)
	}
}
