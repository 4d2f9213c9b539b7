package learn

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"evenkeel/ddqn"
)

// On a window of one step whose later state the two networks value differently, the target is the target network's
// value of the online network's favourite, and not the target network's maximum.
func TestDoubleTargetIsNotTheMaximum(t *testing.T) {
	spec := ddqn.Spec{Features: 1, Actions: 2, Objectives: 2}
	net := newNet(t, spec, 1)
	learner, err := NewLearner(Config{Batch: 1, Group: 1, NStep: 1, Gamma: 0.5, LearningRate: 1e-9}, net, rand.NewPCG(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	// A linear network: the head's weights are [V0 V1 A00 A01 A10 A11] times the one feature. With the mean over
	// the actions zero, Q[a][r] = V[r] + A[a][r].
	copy(learner.online.Weights(), []float32{0, 0, 2, -1, -2, 1, 0, 0, 0, 0, 0, 0})   // w.Q: action 0
	copy(learner.target.Weights(), []float32{10, 20, -3, 4, 3, -4, 0, 0, 0, 0, 0, 0}) // w.Q: action 1 has the maximum
	if err := learner.sync(); err != nil {
		t.Fatal(err)
	}
	replay, err := NewReplay(ReplayConfig{Streams: 1, Capacity: 4, Group: 1, Features: 1, Objectives: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Step{
		{Kind: First, Rows: []float32{0.5}, Actions: []int{1}, Rewards: []float32{100, 200}, Weights: []float32{0.8, 0.2}},
		{Kind: Last, Rows: []float32{1}},
	} {
		if err := replay.Add(0, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := learner.Update(replay); err != nil {
		t.Fatal(err)
	}
	double := []float32{100 + 0.5*(10-3), 200 + 0.5*(20+4)}  // target's value of online's argmax, action 0
	maximum := []float32{100 + 0.5*(10+3), 200 + 0.5*(20-4)} // target's value of its own argmax, action 1
	if sameBits(double, maximum) < 0 {
		t.Fatal("the case does not tell the two apart")
	}
	if !close32(learner.y, double) {
		t.Errorf("target %v, want the double one %v (the maximum would be %v)", learner.y, double, maximum)
	}
}

func TestTerminalAndTimeLimit(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		spec := ddqn.Spec{Features: 1, Actions: 1, Objectives: 1}
		net := newNet(t, spec, 1)
		copy(net.Weights(), []float32{7, 0, 0, 0}) // V = 7 x
		learner, err := NewLearner(Config{Batch: 1, Group: 1, Gamma: 0.5, Tau: 1e-9, LearningRate: 1e-9}, net, rand.NewPCG(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		replay, err := NewReplay(ReplayConfig{Streams: 1, Capacity: 4, Group: 1, Features: 1, Objectives: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []Step{
			{Kind: First, Rows: []float32{1}, Actions: []int{0}, Rewards: []float32{8}, Weights: []float32{1}},
			{Kind: Last, Terminal: terminal, Rows: []float32{2}},
		} {
			if err := replay.Add(0, s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := learner.Update(replay); err != nil {
			t.Fatal(err)
		}
		want := float32(8 + 0.5*14)
		if terminal {
			want = 8
		}
		if learner.y[0] != want {
			t.Errorf("terminal=%v: target %v, want %v", terminal, learner.y[0], want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	nan := math.NaN()
	err := Config{
		Batch: -1, Group: 1 << 20, NStep: -3, Gamma: 1, Tau: 1.5, LearningRate: nan, DecayUpdates: -1, FinalRate: 2,
	}.validate()
	for _, field := range []string{
		"batch", "group", "n_step", "gamma", "tau", "learning_rate", "decay_updates", "final_rate",
	} {
		if err == nil || !strings.Contains(err.Error(), "learner."+field) {
			t.Errorf("learner.%s is not reported: %v", field, err)
		}
	}
	if err := (Config{}).validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Batch: 1 << 16, Group: 1 << 16}).validate(); err == nil {
		t.Error("2^32 rows were accepted")
	}
	c := Config{LearningRate: 2, DecayUpdates: 10, FinalRate: 0.5}
	for updates, want := range map[int]float64{0: 2, 5: 1.5, 10: 1, 20: 1} {
		if got := c.rate(updates); math.Abs(got-want) > 1e-12 {
			t.Errorf("rate after %d updates is %v, want %v", updates, got, want)
		}
	}
}

func TestBlend(t *testing.T) {
	target := []float32{1, -2, 0}
	blend(target, []float32{5, 2, 0}, 0.25)
	if want := []float32{2, -1, 0}; sameBits(target, want) >= 0 {
		t.Errorf("blended %v, want %v", target, want)
	}
}

func TestUpdateErrors(t *testing.T) {
	spec := ddqn.Spec{Features: 2, Actions: 2, Objectives: 1, Hidden: []int{4}}
	rc := ReplayConfig{Streams: 1, Capacity: 50, Group: 1, Features: 2, Objectives: 1}
	rng := rand.New(rand.NewPCG(1, 1))
	net := newNet(t, spec, 1)
	learner, err := NewLearner(Config{Batch: 4, Group: 1}, net, rand.NewPCG(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	before := net.Clone()
	check := func(name string, replay *Replay, want error) {
		t.Helper()
		if _, err := learner.Update(replay); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if !net.Equal(before) || learner.Updates() != 0 {
			t.Errorf("%s: the network was changed", name)
		}
	}
	empty, _ := NewReplay(rc)
	check("empty", empty, errEmpty)
	other := rc
	other.Group = 2
	check("another group", randomReplay(t, other, 2, 30, rng), ddqn.ErrMismatch)
	check("unknown action", randomReplay(t, rc, 40, 30, rng), nil)
	huge := randomReplay(t, rc, 2, 30, rng)
	for i := range huge.streams[0].rewards {
		huge.streams[0].rewards[i] = math.MaxFloat32
	}
	check("overflow", huge, ddqn.ErrNotFinite)
	if _, err := NewLearner(Config{Gamma: 2}, net, rand.NewPCG(1, 1)); err == nil {
		t.Error("gamma 2 was accepted")
	}
}

// Rows that are masked neither change the loss nor receive a gradient, and groups without a live row do no harm.
func TestMaskedRowsDoNotCount(t *testing.T) {
	spec := ddqn.Spec{Features: 3, Actions: 2, Objectives: 2, Hidden: []int{5}}
	c := ReplayConfig{Streams: 1, Capacity: 40, Group: 3, Features: 3, Objectives: 2}
	train := func(noise float32) *ddqn.Network {
		net, rng := newNet(t, spec, 1), rand.New(rand.NewPCG(2, 2))
		learner, err := NewLearner(Config{Batch: 8, Group: 3}, net, rand.NewPCG(3, 3))
		if err != nil {
			t.Fatal(err)
		}
		replay := randomReplay(t, c, 2, 40, rng)
		st := &replay.streams[0]
		for i := range st.live {
			st.live[i] = i%3 != 1 && (i/3)%7 != 0
			if !st.live[i] {
				st.rewards[i*2] += noise
				st.rows[i*3] += noise
			}
		}
		for range 20 {
			if s, err := learner.Update(replay); err != nil || s.Loss <= 0 {
				t.Fatalf("%+v: %v", s, err)
			}
		}
		return net
	}
	if !train(0).Equal(train(50)) {
		t.Error("masked rows changed the weights")
	}
}

// An actor works in one goroutine while a learner trains in another and synchronises it; run with -race.
func TestActorBesideLearner(t *testing.T) {
	spec := ddqn.Spec{Features: 4, Actions: 3, Objectives: 1, Hidden: []int{8}}
	net := newNet(t, spec, 1)
	actor := ddqn.NewActor(net)
	rng := rand.New(rand.NewPCG(1, 1))
	replay := randomReplay(t, ReplayConfig{Streams: 1, Capacity: 100, Group: 1, Features: 4, Objectives: 1}, 3, 100, rng)
	var learners, actors sync.WaitGroup
	stop := make(chan struct{})
	actors.Go(func() {
		rows, q := make([]float32, 70*4), []float32(nil)
		for {
			select {
			case <-stop:
				return
			default:
				q = actor.Q(q, rows)
			}
		}
	})
	// Two learners and a second actor at once, because building graphs must be safe as well.
	for seed, own := range []*ddqn.Network{net, net.Clone()} {
		learners.Go(func() {
			learner, err := NewLearner(Config{Batch: 8, Group: 1}, own, rand.NewPCG(uint64(seed), 1))
			if err != nil {
				t.Error(err)
				return
			}
			for range 100 {
				if _, err := learner.Update(replay); err != nil {
					t.Error(err)
				}
				if err := actor.Sync(own); err != nil {
					t.Error(err)
				}
			}
		})
	}
	actors.Go(func() {
		other := ddqn.NewActor(newNet(t, spec, 5))
		for range 100 {
			other.Q(nil, make([]float32, 5*4))
		}
	})
	learners.Wait()
	close(stop)
	actors.Wait()
}
