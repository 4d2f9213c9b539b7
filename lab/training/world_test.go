package training

import (
	"math/rand/v2"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/env/episode"
)

// Training draws all kinds of jobs: few and many nodes, short and long rounds, dominating overheads, wrong and missing profiles and
// profiles of another form, every kind of change.
func TestSamplerCoversTheWorld(t *testing.T) {
	sampler, err := NewSampler(profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	const draws = 600
	count := map[string]float64{}
	for range draws {
		e, err := sampler.Episode(rng, 3000)
		if err != nil {
			t.Fatal(err)
		}
		n := len(e.Cluster.Nodes)
		if e.Rounds*n > 250*n && e.Rounds*n > 50_000 {
			t.Errorf("%d rounds of %d nodes", e.Rounds, n)
		}
		hidden, shapeless := 0, false
		for i := range e.Cluster.Nodes {
			if node := &e.Cluster.Nodes[i]; node.Profile == nil {
				hidden++
			} else if node.Hidden.Profile != nil && node.Hidden.Profile.Seconds(1) != node.Profile.Seconds(1) {
				shapeless = true
			}
		}
		c := e.Cluster.Revealed()
		sizes := make([]int, n)
		finish, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
		if err != nil {
			t.Fatal(err)
		}
		constant := 0.0
		for i, p := range c.Nominal() {
			if sizes[i] > 0 {
				constant = max(constant, 1-p.PerSample*float64(sizes[i])/c.Nodes[i].Finish(p, sizes[i]))
			}
		}
		for what, is := range map[string]bool{
			"2 to 8 nodes": n <= 8, "512 nodes and more": n >= 512, "rounds below 0.3 s": finish < 0.3, "rounds above 30 s": finish > 30, "half of a round overhead": constant > 0.5,
			"no profile at all": hidden == n, "some profiles": hidden > 0 && hidden < n, "a wrong form": shapeless, "wrong profiles": e.Conditions.Wrong.Share > 0,
			"diurnal": e.Conditions.Diurnal.Amplitude > 0, "creep": e.Conditions.Creep.Share > 0, "hangs": e.Conditions.Failures.Silent > 0, "noisy gradients late in training": e.Conditions.Scale.Start > 30 && e.Conditions.Scale.Norms > 0.05,
			"a rule that is free": len(e.Cluster.Choices.Rules()) > 0, "preferences": e.Weights != [env.Objectives]float64{1},
		} {
			if is {
				count[what]++
			}
		}
	}
	for what, least := range map[string]float64{
		"2 to 8 nodes": 0.3, "512 nodes and more": 0.005, "rounds below 0.3 s": 0.05, "rounds above 30 s": 0.05, "half of a round overhead": 0.05, "no profile at all": 0.05, "some profiles": 0.05, "a wrong form": 0.05,
		"wrong profiles": 0.04, "diurnal": 0.03, "creep": 0.03, "hangs": 0.05, "noisy gradients late in training": 0.05, "a rule that is free": 0.3, "preferences": 0.4,
	} {
		if got := count[what] / draws; got < least {
			t.Errorf("%s: %.3f of the episodes, want at least %v", what, got, least)
		}
	}
}

// Profiles that were changed keep their marginal times but for the pace, and nodes of a device have one profile.
func TestChanged(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 2}, {MicroBatch: 5, Seconds: 6}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := changed(p, 1, 0); err != nil || same != p {
		t.Errorf("nothing changed, but %v (%v)", same, err)
	}
	q, err := changed(p, 0.5, 3)
	if err != nil {
		t.Fatal(err)
	}
	if q.Seconds(1) != 2.5 || q.Seconds(5) != 4.5 || p.Seconds(1) != 2 {
		t.Errorf("%v and %v seconds, want 2.5 and 4.5", q.Seconds(1), q.Seconds(5))
	}
}

// An episode of the widest kind can be played.
func TestWorldIsPlayable(t *testing.T) {
	sampler, err := NewSampler(profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for range 40 {
		config, err := sampler.Episode(rng, 12)
		if err != nil {
			t.Fatal(err)
		}
		e, err := episode.New(config)
		if err != nil {
			t.Fatal(err)
		}
		step, err := e.Reset()
		actions := make([]int, e.Size())
		for err == nil && step.Kind != episode.Last {
			for i := range actions {
				actions[i] = rng.IntN(len(env.Actions))
			}
			step, err = e.Step(actions)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
