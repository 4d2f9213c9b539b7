package episode

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/env/internal/envtest"
)

// widest is what no entry of a row exceeds in absolute value. The widest are the mean
// of four residuals (5.4) and the logarithm of a node's noise, which starts at 3% and
// cannot reach 400 times that in an episode.
const widest = 8

// moment is everything that an environment shows at one step.
type moment struct {
	Step Step
	Rows []float32
	Live []bool
}

// conform checks what must hold in every environment. create returns environments of one
// configuration; the actions are random, from a seed.
func conform(t *testing.T, create func() *Episode) {
	t.Helper()
	e := create()
	if _, err := e.Step(make([]int, e.Size())); !errors.Is(err, errOver) {
		t.Fatalf("step before Reset: %v, want errOver", err)
	}
	first := play(t, e)
	if k := differ(first, play(t, e)); k >= 0 {
		t.Fatalf("the episode after Reset differs in step %d", k)
	}
	if k := differ(first, play(t, create())); k >= 0 {
		t.Fatalf("another environment of the same seed differs in step %d", k)
	}
}

// differ is the first step in which the bits of two episodes differ, -1 if there is none.
func differ(a, b []moment) int {
	for k := range max(len(a), len(b)) {
		if k >= len(a) || k >= len(b) {
			return k
		}
		x, y := &a[k], &b[k]
		if x.Step.Kind != y.Step.Kind || x.Step.Terminal != y.Step.Terminal || x.Step.Reward != y.Step.Reward ||
			!slices.Equal(x.Step.Nodes, y.Step.Nodes) || !slices.Equal(x.Rows, y.Rows) || !slices.Equal(x.Live, y.Live) {
			return k
		}
	}
	return -1
}

// play runs an episode to its end and checks every step.
func play(t *testing.T, e *Episode) []moment {
	t.Helper()
	s, err := e.Reset()
	if err != nil {
		t.Fatalf("Reset: %v", err)
	}
	if s.Kind != First && !(s.Kind == Last && s.Terminal) {
		t.Fatalf("Reset gives kind %d, terminal %v", s.Kind, s.Terminal)
	}
	if s.Reward != [env.Objectives]float64{} || slices.ContainsFunc(s.Nodes, func(v float32) bool { return v != 0 }) {
		t.Fatalf("the first step carries a reward: %v", s.Reward)
	}
	moments := []moment{look(t, e, s)}
	rng := rand.New(rand.NewPCG(5, 5))
	actions := make([]int, e.Size())
	for s.Kind != Last {
		if len(moments) < 3 {
			refuse(t, e)
		}
		live := slices.Clone(e.Live())
		for i := range actions {
			actions[i] = rng.IntN(len(env.Actions))
		}
		if s, err = e.Step(actions); err != nil {
			t.Fatalf("step %d: %v", len(moments), err)
		}
		moments = append(moments, look(t, e, s))
		if s.Terminal {
			break
		}
		for i, b := range e.sizes {
			if b > 0 && !live[i] || !e.config.Cluster.Nodes[i].Takes(b) {
				t.Fatalf("step %d: node %d got %d samples, live %v, limit %d", len(moments), i, b, live[i], e.config.Cluster.Nodes[i].Limit)
			}
		}
		if want := len(moments) == e.config.Rounds; (s.Kind == Last) != want {
			t.Fatalf("kind %d at step %d of %d", s.Kind, len(moments), e.config.Rounds)
		}
	}
	if s.Terminal {
		if err := e.config.Cluster.CheckCapacity(e.Live()); !errors.Is(err, cluster.ErrCapacity) {
			t.Fatalf("terminal, but the nodes can hold the batch: %v", err)
		}
	}
	for range 2 {
		if _, err := e.Step(actions); !errors.Is(err, errOver) {
			t.Fatalf("step after the last: %v, want errOver", err)
		}
	}
	return moments
}

// look checks one step and copies what it shows.
func look(t *testing.T, e *Episode, s Step) moment {
	t.Helper()
	m := moment{Step: s, Rows: e.Rows(nil), Live: slices.Clone(e.Live())}
	m.Step.Nodes = slices.Clone(s.Nodes)
	if len(m.Rows) != e.Size()*env.Features || len(m.Live) != e.Size() || len(s.Nodes) != e.Size()*env.Objectives {
		t.Fatalf("%d nodes: %d values of rows, %d of live, %d of rewards", e.Size(), len(m.Rows), len(m.Live), len(s.Nodes))
	}
	for i, v := range m.Rows {
		if !(math.Abs(float64(v)) <= widest) {
			t.Fatalf("node %d, feature %d is %v", i/env.Features, i%env.Features, v)
		}
	}
	if s.Terminal && s.Kind != Last {
		t.Fatalf("terminal in a step of kind %d", s.Kind)
	}
	// Progress is goodput relative to an oracle that does not know the noise, so a lucky
	// round beats it. With a quorum there is no bound: old gradients may fill it at once.
	most := 0.5
	if e.config.Cluster.Collect != (cluster.Collect{}) {
		most = math.MaxFloat64
	}
	if r := s.Reward; !(r[0] >= -1 && r[0] < most) || !(r[1] >= -1 && r[1] <= 0) || !(r[2] >= -1 && r[2] <= 0) {
		t.Fatalf("team reward %v", r)
	}
	for i, v := range s.Nodes {
		least := [env.Objectives]float32{-worst, -worst, -1, -worst}[i%env.Objectives]
		if !(v >= least && v <= 0) {
			t.Fatalf("node %d, objective %d: reward %v", i/env.Objectives, i%env.Objectives, v)
		}
	}
	return m
}

// refuse checks that bad actions change nothing.
func refuse(t *testing.T, e *Episode) {
	t.Helper()
	before := e.Rows(nil)
	n := e.Size()
	low, high := make([]int, n), make([]int, n)
	low[n-1], high[n-1] = -1, len(env.Actions)
	for _, bad := range [][]int{nil, make([]int, n-1), make([]int, n+1), low, high} {
		if _, err := e.Step(bad); err == nil || errors.Is(err, errOver) {
			t.Fatalf("actions %v: %v", bad, err)
		}
	}
	if !slices.Equal(before, e.Rows(nil)) {
		t.Fatal("refused actions changed the observation")
	}
}

func TestConform(t *testing.T) {
	type setup struct {
		name   string
		config Config
	}
	var setups []setup
	add := func(name string, c *cluster.Cluster, conditions cluster.Conditions, rounds int) {
		setups = append(setups, setup{name, Config{Cluster: c, Conditions: conditions, Seed: 11, Rounds: rounds, Weights: [env.Objectives]float64{0.5, 0.3, 0.2}}})
	}
	for _, name := range cluster.Presets() {
		add(name+"/2", envtest.Mixed(t, 2), envtest.Preset(t, name), 60)
		add(name+"/16", envtest.Mixed(t, 16), envtest.Preset(t, name), 120)
		quorum := envtest.Mixed(t, 16)
		quorum.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.75}, GraceShare: 0.1}
		add(name+"/quorum", quorum, envtest.Preset(t, name), 80)
	}
	add("exact", envtest.Mixed(t, 5), cluster.Conditions{}, 20)
	add("shortest", envtest.Mixed(t, 2), envtest.Preset(t, "steady"), 2)
	add("300", envtest.Mixed(t, 300), envtest.Preset(t, "bursts"), 25)
	unknown := envtest.Mixed(t, 8)
	for i := range unknown.Nodes[:5] {
		n := &unknown.Nodes[i]
		n.Profile, n.Hidden.Profile = nil, n.Profile
	}
	add("unknown profiles", unknown, envtest.Preset(t, "drift"), 100)
	hurried := *unknown // nodes far slower than their nameplates suggest, so that some are late at once
	hurried.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.7}}
	add("unknown profiles, late", &hurried, envtest.Preset(t, "bursts"), 100)
	tight := envtest.Mixed(t, 6)
	for i := range tight.Nodes {
		tight.Nodes[i].Shapes = []int{2} // without the first node, no odd batch is possible
	}
	tight.Nodes[0].Shapes = nil
	tight.GlobalBatch |= 1
	stormy := envtest.Preset(t, "steady")
	stormy.Failures = cluster.Failures{Rate: 0.05, Rounds: 20, Silent: 0.5}
	add("terminal", tight, stormy, 500)
	late := envtest.Preset(t, "steady")
	late.Joins = cluster.Joins{Share: 0.5, Rounds: 10}
	add("terminal at once", tight, late, 50)
	stale := envtest.Mixed(t, 8)
	stale.Collect = cluster.Collect{Quorum: cluster.Quorum{Count: 5}, MaxStaleness: 900e6, Timeout: 3e9}
	add("stale", stale, envtest.Preset(t, "bursts"), 100)
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			conform(t, func() *Episode {
				e, err := New(s.config)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// The two setups that are meant to end early do, so that the suite covers it.
func TestTerminalIsReached(t *testing.T) {
	c := envtest.Mixed(t, 2)
	c.GlobalBatch = 49 // odd: neither makes it up alone
	c.Nodes[0].Shapes, c.Nodes[1].Shapes = []int{8}, []int{9}
	for name, conditions := range map[string]cluster.Conditions{
		"failure": {Failures: cluster.Failures{Rate: 0.2, Rounds: 5}},
		"join":    {Joins: cluster.Joins{Share: 0.5, Rounds: 1000}},
	} {
		e, err := New(Config{Cluster: c, Conditions: conditions, Seed: 3, Rounds: 200})
		if err != nil {
			t.Fatal(err)
		}
		moments := play(t, e)
		end := moments[len(moments)-1].Step
		if !end.Terminal || end.Kind != Last || len(moments) >= 200 {
			t.Errorf("%s: %d steps, terminal %v, kind %d", name, len(moments), end.Terminal, end.Kind)
		}
	}
}

// Without noise, no round beats the state oracle, and a round sized by the profiles alone
// equals it.
func TestProgressOfAnExactCluster(t *testing.T) {
	e, err := New(Config{Cluster: envtest.Mixed(t, 6), Conditions: cluster.Conditions{}, Seed: 1, Rounds: 30})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(); err != nil {
		t.Fatal(err)
	}
	actions := make([]int, e.Size())
	for i := range actions {
		actions[i] = i * 3 // every kind of update, the smallest margin
	}
	for k := range 29 {
		s, err := e.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		if s.Reward[0] > 1e-6 || s.Reward[0] < -0.05 {
			t.Errorf("step %d: progress %v", k, 1+s.Reward[0])
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Cluster: envtest.Mixed(t, 2), Conditions: envtest.Preset(t, "steady"), Rounds: 2}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	short, wrong := good, good
	short.Rounds = 1
	wrong.Conditions.Bias = -1
	for name, config := range map[string]Config{"rounds": short, "conditions": wrong} {
		if _, err := New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
