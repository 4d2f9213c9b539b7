package learn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"evenkeel/ddqn"
)

// Stats describes one update.
type Stats struct {
	// Loss is the Huber loss before the update, summed over the objectives.
	Loss float64
	// GradNorm is the norm of its gradient over all weights, before clipping.
	GradNorm float64
	// MeanQ is the mean Q-value of the actions taken, over the live rows and the objectives, in units of reward.
	MeanQ float64
	// LearningRate is the step size used.
	LearningRate float64
}

// Learner trains a network by Double DQN (van Hasselt et al. 2016). For a window that starts at s with the action
// a of a row and ends n steps later at s', with the preferences w,
//
//	a* = argmax over a' of w . Q_online(s', a')
//	y  = sum over k of gamma^k r_k  +  gamma^n Q_target(s', a*)      a vector, one value per objective
//
// and Q_online(s, a) is moved towards y. A single network that both chooses and values the maximum overestimates it;
// here one network chooses and the other values.
//
// Deviations from the paper: the argmax is over the weighted sum of vector-valued Q (as in Abels et al., ICML 2019);
// the target network follows softly; and n-step returns. Not safe for concurrent use.
type Learner struct {
	cfg     Config
	online  *ddqn.Network
	target  *ddqn.Network
	src     *rand.PCG
	rng     *rand.Rand
	adam    *optimizer
	updates int

	batch *batch
	y     []float32 // targets, rows x objectives
	train *trainer

	// Both score the rows at the end of the windows: an actor per network, and its Q.
	onlineActor, targetActor *ddqn.Actor
	onlineQ, targetQ         []float32
}

// NewLearner prepares to train net in place. Every draw from the replay comes from src, whose state is part of the
// training state; give the learner a generator of its own. It is an error if the configuration is not valid for net.
func NewLearner(cfg Config, net *ddqn.Network, src *rand.PCG) (*Learner, error) {
	spec := net.Spec()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("ddqn/learn: new learner: %w", err)
	}
	cfg = cfg.withDefaults()
	rows := cfg.Batch * cfg.Group
	l := &Learner{
		cfg: cfg, online: net, target: net.Clone(), src: src, rng: rand.New(src),
		adam:  newOptimizer(len(net.Weights())),
		batch: newBatch(cfg.Batch, cfg.Group, spec.Features, spec.Objectives),
		y:     make([]float32, rows*spec.Objectives),
	}
	l.onlineActor, l.targetActor = ddqn.NewActor(l.online), ddqn.NewActor(l.target)
	var err error
	if l.train, err = newTrainer(l.online, l.batch, l.y, cfg); err != nil {
		return nil, fmt.Errorf("ddqn/learn: new learner: %w", err)
	}
	return l, nil
}

// Network returns the network that is trained, the one that NewLearner was given.
func (l *Learner) Network() *ddqn.Network { return l.online }

// Updates is the number of updates done.
func (l *Learner) Updates() int { return l.updates }

// errEmpty means that there is nothing to learn from yet.
var errEmpty = errors.New("ddqn/learn: replay holds no complete n-step window yet")

// Update draws a batch from the replay and takes one gradient step. It fails and changes no weight if the replay holds
// no complete window, if its sizes are not those of the learner (ddqn.ErrMismatch), or if the loss or the gradient is NaN or
// infinite (ddqn.ErrNotFinite; lower LearningRate or scale the rewards).
func (l *Learner) Update(replay *Replay) (Stats, error) {
	if err := l.fits(replay); err != nil {
		return Stats{}, fmt.Errorf("ddqn/learn: update: %w", err)
	}
	if replay.samples(l.cfg.NStep) == 0 {
		return Stats{}, fmt.Errorf("ddqn/learn: update: %d steps held, windows of %d: %w", replay.size(), l.cfg.NStep, errEmpty)
	}
	replay.sample(l.batch, l.cfg.NStep, float32(l.cfg.Gamma), l.rng)
	l.targets()
	loss, err := l.train.run()
	if err != nil {
		return Stats{}, fmt.Errorf("ddqn/learn: update %d: %w", l.updates, err)
	}
	s := Stats{Loss: loss, GradNorm: norm(l.train.gradient), MeanQ: l.meanQ(), LearningRate: l.cfg.rate(l.updates)}
	if sum := s.Loss + s.GradNorm; math.IsNaN(sum) || math.IsInf(sum, 0) {
		return s, fmt.Errorf("ddqn/learn: update %d: loss %v, gradient norm %v; lower the learning rate or scale the rewards: %w",
			l.updates, s.Loss, s.GradNorm, ddqn.ErrNotFinite)
	}
	l.adam.step(l.online.Weights(), l.train.gradient, s.GradNorm, s.LearningRate)
	l.updates++
	blend(l.target.Weights(), l.online.Weights(), float32(l.cfg.Tau))
	return s, l.sync()
}

// sync gives the actors the weights of their networks.
func (l *Learner) sync() error {
	return errors.Join(l.onlineActor.Sync(l.online), l.targetActor.Sync(l.target))
}

// blend moves the target's weights towards the online network's by the share tau, 0 to 1: w += tau (online - w). This is
// the soft target update of Lillicrap et al. 2016.
func blend(target, online []float32, tau float32) {
	online = online[:len(target)]
	for i, w := range target {
		target[i] = w + float32(tau*(online[i]-w))
	}
}

func (l *Learner) fits(replay *Replay) error {
	c, s := replay.cfg, l.online.Spec()
	if c.Group != l.cfg.Group || c.Features != s.Features || c.Objectives != s.Objectives {
		return fmt.Errorf("the replay has %d rows a step, %d features, %d objectives, the learner %d, %d, %d: %w",
			c.Group, c.Features, c.Objectives, l.cfg.Group, s.Features, s.Objectives, ddqn.ErrMismatch)
	}
	return nil
}

// targets fills y for the batch.
func (l *Learner) targets() {
	l.onlineQ = l.onlineActor.Q(l.onlineQ, l.batch.later)
	l.targetQ = l.targetActor.Q(l.targetQ, l.batch.later)
	spec := l.online.Spec()
	doubleTargets(l.y, l.batch, l.cfg.Group, l.onlineQ, l.targetQ, spec.Actions, spec.Objectives)
}

// doubleTargets computes the target vectors from both networks' Q at the end of the windows.
func doubleTargets(y []float32, b *batch, group int, online, target []float32, actions, objectives int) {
	outputs := actions * objectives
	for i, live := range b.live {
		g := i / group
		row := y[i*objectives:][:objectives]
		copy(row, b.returns[i*objectives:])
		if live == 0 || b.discount[g] == 0 {
			continue
		}
		best := ddqn.Greedy(online[i*outputs:][:outputs], actions, objectives, b.weights[g*objectives:])
		for r, q := range target[i*outputs+best*objectives:][:objectives] {
			row[r] += float32(b.discount[g] * q)
		}
	}
}

// meanQ is the mean chosen Q over the live rows and the objectives; zero where no row is live.
func (l *Learner) meanQ() float64 {
	var total, rows float64
	objectives := l.online.Spec().Objectives
	for i, live := range l.batch.live {
		if live > 0 {
			total += float64(sum(l.train.chosen[i*objectives:][:objectives]))
			rows++
		}
	}
	return total / math.Max(1, rows*float64(objectives))
}
