package training

import (
	"math"
	"math/rand/v2"

	"evenkeel/ddqn"
	"evenkeel/ddqn/learn"
	"evenkeel/env"
	"evenkeel/env/episode"
)

// stream is one environment of a training run and the nodes followed in it.
type stream struct {
	episode *episode.Episode
	weights [env.Objectives]float64
	follow  []int // nodes whose rows go into the replay
	rows    []float32
	q       []float32
	actions []int
	rule    int          // of the round, -1: fixed
	played  []learn.Step // since the last store: a step, and the Last one if it ended the episode

	born    []byte   // state of the generator before the episode was drawn
	history [][]byte // per round so far, a byte per node's action and one for the rule, which a checkpoint replays
}

// begin starts a new episode in a stream.
func (t *Trainer) begin(s *stream) error {
	for {
		var err error
		if s.born, err = t.pcg.MarshalBinary(); err != nil {
			return err
		}
		s.history = s.history[:0]
		if started, err := s.draw(t.sampler, t.rng); err != nil || started {
			return err
		}
	}
}

// draw draws an episode. It returns false if the episode ends before it begins.
func (s *stream) draw(sampler *Sampler, rng *rand.Rand) (bool, error) {
	least, most := float64(trainShort), float64(trainUsual)
	if rng.Float64() < trainLonger {
		least, most = most, trainLong
	}
	config, err := sampler.Episode(rng, int(logUniform(rng, least, most)))
	if err != nil {
		return false, err
	}
	e, err := episode.New(config)
	if err != nil {
		return false, err
	}
	first, err := e.Reset()
	if err != nil {
		return false, err
	}
	s.episode, s.weights = e, config.Weights
	s.follow = rng.Perm(e.Size())
	s.follow = s.follow[:min(len(s.follow), trainGroup)]
	s.actions = make([]int, e.Size())
	s.played, s.rule = s.played[:0], -1
	return first.Kind != episode.Last, nil
}

// choose chooses the round's rule if it is free: the one with the highest average value, or a random one.
func (t *Trainer) choose(s *stream, random float64) {
	allowed := s.episode.Allowed()
	if len(allowed) == 0 {
		return
	}
	s.rule = s.episode.BestRule()
	if t.rng.Float64() < max(trainRules, random) {
		s.rule = allowed[t.rng.IntN(len(allowed))]
	}
	s.episode.SetRule(s.rule)
}

// act chooses the actions of stream k. Only one followed node for every fleetPerNode nodes
// explores, less in later streams: otherwise the network would see large clusters only with many
// random actions.
func (t *Trainer) act(s *stream, k int, random float64) {
	const width = env.Objectives
	per, weights := len(env.Actions)*width, weights32(s.weights)
	for i := range s.actions {
		s.actions[i] = ddqn.Greedy(s.q[i*per:(i+1)*per], len(env.Actions), width, weights)
	}
	epsilon := t.config.Explore * math.Pow(0.1, float64(k)/float64(len(t.streams)))
	explorers := min(max(len(s.actions)/fleetPerNode, 1), len(s.follow))
	for f, i := range s.follow {
		if t.rng.Float64() < random || f < explorers && t.rng.Float64() < epsilon {
			s.actions[i] = t.rng.IntN(len(env.Actions))
		}
	}
}

// note records the observation and the choice before the step.
func (s *stream) note() {
	kind := learn.Mid
	if len(s.history) == 0 {
		kind = learn.First
	}
	p := s.observe(kind)
	p.Actions = make([]int, trainGroup)
	p.Rewards = make([]float32, trainGroup*env.Objectives)
	p.Weights = weights32(s.weights)
	done := make([]byte, len(s.actions)+1)
	for i, a := range s.actions {
		done[i] = byte(a)
	}
	done[len(s.actions)] = byte(s.rule + 1)
	s.history = append(s.history, done)
	for k, i := range s.follow {
		p.Actions[k] = s.actions[i]
	}
	s.played = append(s.played[:0], p)
}

// earn records the outcome of the step. It returns the sum of the followed nodes' own speed
// rewards.
func (s *stream) earn(step episode.Step) float64 {
	sum, p := 0.0, &s.played[0]
	for k, i := range s.follow {
		for o := range env.Objectives {
			p.Rewards[k*env.Objectives+o] = step.Nodes[i*env.Objectives+o] + float32(trainTeam*step.Reward[o])
		}
		sum += float64(step.Nodes[i*env.Objectives])
	}
	if step.Kind == episode.Last {
		s.rows = s.episode.Rows(s.rows)
		last := s.observe(learn.Last)
		last.Terminal = step.Terminal
		s.played = append(s.played, last)
	}
	return sum
}

// observe copies the followed nodes' rows into a replay step.
func (s *stream) observe(kind learn.Kind) learn.Step {
	p := learn.Step{Kind: kind, Rows: make([]float32, trainGroup*env.Features), Live: make([]bool, trainGroup)}
	present := s.episode.Live()
	for k, i := range s.follow {
		copy(p.Rows[k*env.Features:], s.rows[i*env.Features:(i+1)*env.Features])
		p.Live[k] = present[i]
	}
	return p
}

func weights32(w [env.Objectives]float64) []float32 {
	w32 := make([]float32, len(w))
	for o, v := range w {
		w32[o] = float32(v)
	}
	return w32
}
