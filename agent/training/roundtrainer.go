package training

import (
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/episode"
)

// roundTrainer learns what the moving averages of the rules' values miss. Its network
// decides once a round; its actions are the rules, and the reward of a rule is its value,
// as played out in a copy of the episode, minus its average (episode.Step.Rules). A judged
// round teaches several rules at once, drawn at random.
type roundTrainer struct {
	replay    *ddqn.Replay
	learner   *ddqn.Learner
	actor     *ddqn.Actor
	low, high []float32
}

func (r *roundTrainer) init(config Config) error {
	r.low, r.high = make([]float32, env.RoundFeatures), make([]float32, env.RoundFeatures)
	spec := ddqn.Spec{Features: env.RoundFeatures, Actions: len(cluster.Rules), Objectives: env.Objectives, Hidden: config.Hidden}
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(config.Seed, 4)))
	if err != nil {
		return err
	}
	r.replay, err = ddqn.NewReplay(ddqn.ReplayConfig{Streams: config.Envs, Capacity: roundReplay, Group: trainGroup, Features: env.RoundFeatures, Objectives: env.Objectives})
	if err != nil {
		return err
	}
	r.learner, err = ddqn.NewLearner(ddqn.LearnerConfig{
		Batch: trainRows / trainGroup, Group: trainGroup, NStep: 1,
		LearningRate: trainRate, DecayUpdates: config.sets() * config.Updates / roundUpdates, FinalRate: 0.02,
	}, net, rand.NewPCG(config.Seed, 5))
	r.actor = ddqn.NewActor(net)
	return err
}

// rule chooses the round's rule in a stream where it is free, and records the observation.
func (t *Trainer) rule(s *stream, random float64) {
	s.judged = s.judged[:0]
	allowed := s.episode.Allowed()
	if len(allowed) == 0 {
		return
	}
	s.row = s.episode.RoundRow(s.row)
	widen(t.rounds.low, t.rounds.high, s.row)
	s.values = t.rounds.actor.Q(s.values, s.row)
	s.rule = s.episode.BestRule(s.values)
	if t.rng.Float64() < max(roundExplore, random) {
		s.rule = allowed[t.rng.IntN(len(allowed))]
	}
	s.episode.SetRule(s.rule)
	if t.rng.Float64() >= askNodes/float64(s.episode.Size()) {
		return
	}
	p := ddqn.Step{Kind: ddqn.First, Actions: make([]int, trainGroup), Weights: weights32(s.weights)}
	for k := range p.Actions {
		p.Actions[k] = t.rng.IntN(len(cluster.Rules))
		p.Rows = append(p.Rows, s.row...)
	}
	s.episode.Ask(p.Actions)
	s.judged = append(s.judged, p)
}

// judge records the values of the rules asked for. Each such round is an episode of its
// own: the reward includes what a rule leaves to later rounds.
func (s *stream) judge(step episode.Step) {
	if len(s.judged) == 0 {
		return
	}
	p := &s.judged[0]
	p.Rewards = append([]float32(nil), step.Rules...)
	if len(step.Rules) == 0 { // the nodes left could not hold the global batch
		s.judged = s.judged[:0]
		return
	}
	s.judged = append(s.judged, ddqn.Step{Kind: ddqn.Last, Terminal: true, Rows: p.Rows})
}
