package episode

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/env"
	"evenkeel/env/internal/envtest"
)

func TestOwnReward(t *testing.T) {
	for _, noise := range []float64{0.005, 0.03, 0.12} {
		for _, margin := range []float64{0.5, 1.2, 2} {
			stakes := stakes{margin: margin}
			reward := func(ratio float64) float64 { return stakes.ownReward(ratio, ratio, noise) }
			best := 1 + margin*noise
			if got := reward(best); got != 0 {
				t.Errorf("noise %v, margin %v: reward %v at the best parameter", noise, margin, got)
			}
			// Falls on both sides, outside a flat top narrower than half a deviation: margin is
			// the optimum to first order in the noise.
			for _, side := range []float64{-1, 1} {
				last := 0.0
				for k := 1; k <= 40; k++ {
					got := reward(best * (1 + side*noise*0.5*float64(k)))
					if 0.5*noise*float64(k) >= 0.9 && side < 0 {
						break // no parameter is below zero
					}
					if !(got < last) && got != -worst {
						t.Errorf("noise %v, margin %v: reward %v after %v, %v half deviations off", noise, margin, got, last, side*float64(k))
					}
					if got < -worst || got > 0 {
						t.Errorf("reward %v", got)
					}
					last = got
				}
			}
			// Overload (a parameter below the truth) makes all nodes wait.
			for _, off := range []float64{2, 4, 8} {
				under, over := reward(best*(1-off*noise)), reward(best*(1+off*noise))
				if off*noise < 0.9 && !(under < over) {
					t.Errorf("noise %v, margin %v, %v deviations: overload costs %v, waste %v", noise, margin, off, under, over)
				}
			}
		}
	}
	one := stakes{margin: 1}
	if got := one.ownReward(1e-9, 1e-9, 0.03); got != -worst {
		t.Errorf("an absurd overload costs %v", got)
	}
	if got := one.ownReward(1e9, 1e9, 0.03); got != -worst {
		t.Errorf("an absurd waste costs %v", got)
	}
	if got := one.ownReward(1, 1, 0); !(got <= 0 && got > -0.02) {
		t.Errorf("without noise the truth costs %v", got)
	}
}

// Nobody could foresee a jump between the measurement and the round; drift counts.
func TestOwnRewardExcusesJumps(t *testing.T) {
	usual := stakes{margin: 1.2}
	fits := 1 * (1 + 1.2*0.03)
	if got := usual.ownReward(fits, fits/2, 0.03); got != 0 {
		t.Errorf("a jump after the measurement costs %v", got)
	}
	if got, want := usual.ownReward(2, 2.1, 0.03), usual.ownReward(2.1, 2.1, 0.03); got != want {
		t.Errorf("drift of 5%% far above the truth costs %v, want %v", got, want)
	}
	if stale, kept := usual.ownReward(fits, fits/1.09, 0.03), usual.ownReward(fits, fits, 0.03); !(stale < kept) {
		t.Errorf("9%% of drift costs %v, none %v", stale, kept)
	}
}

// The flat top of ownReward lies where the loss it is built on does: the best parameter
// by a plain search is within a few hundredths of a deviation.
func TestOwnRewardsOptimum(t *testing.T) {
	for _, noise := range []float64{0.01, 0.05, 0.1} {
		for _, margin := range []float64{0.8, 1.5} {
			best, at := math.Inf(1), 0.0
			for z := margin - 1; z < margin+1; z += 0.002 {
				ratio := 1 + z*noise
				t := (ratio - 1) / noise
				if loss := math.Log(ratio) + noise*(density(t)-t*above(t))/above(margin)/ratio; loss < best {
					best, at = loss, z
				}
			}
			if math.Abs(at-margin) > 0.1 {
				t.Errorf("noise %v: the least loss is at %v deviations, the reward takes %v", noise, at, margin)
			}
		}
	}
}

// Behind many spikes a little lateness is hidden; beyond the largest of them nothing is.
func TestStakesBehindSpikes(t *testing.T) {
	c := cluster.Conditions{Spikes: cluster.Spikes{Rate: 0.03, Least: 0.1, More: 0.2}}
	for _, nodes := range []int{64, 512, 10_000} {
		s := newStakes(spread(t, nodes), &c, nodes, cluster.Rule{Quorum: 1})
		largest, rng := 0.0, rand.New(rand.NewPCG(41, 42))
		for range 200 {
			most := 0.0
			for range nodes {
				if rng.Float64() < c.Spikes.Rate {
					most = max(most, c.Spikes.Least+c.Spikes.More*rng.ExpFloat64())
				}
			}
			largest += most / 200
		}
		if math.Abs(s.beyond-largest) > 0.1*largest {
			t.Errorf("%d nodes: spikes end at %.3f, expected at %.3f", nodes, largest, s.beyond)
		}
		inside, outside := 1/(1+0.5*s.beyond), 1/(1+1.3*s.beyond)
		hides := stakes{margin: s.margin}
		for _, ratio := range []float64{inside, outside} {
			if got, plain := s.ownReward(ratio, ratio, 0.02), hides.ownReward(ratio, ratio, 0.02); (got < plain-1e-9) != (ratio == outside) && plain > -worst {
				t.Errorf("%d nodes: %.2f over the finish earns %v, %v if the spikes hid everything", nodes, 1/ratio-1, got, plain)
			}
		}
	}
	if s := newStakes(spread(t, 64), &cluster.Conditions{}, 64, cluster.Rule{Quorum: 1}); s.beyond != 0 {
		t.Errorf("without spikes everybody hides until %v", s.beyond)
	}
}

// fleetTime is the mean time of a round in which all nodes keep m deviations of margin,
// relative to one without noise: 16 equal nodes, noise and spikes by the conditions.
func fleetTime(c *cluster.Conditions, fleets [][]float64, m float64) float64 {
	rng := rand.New(rand.NewPCG(21, 22)) // the same rounds for every m
	total := 0.0
	for _, noise := range fleets {
		shares, sum := make([]float64, len(noise)), 0.0
		for i, s := range noise {
			shares[i] = 1 / (1 + m*s)
			sum += shares[i]
		}
		for range 60 {
			slowest := 0.0
			for i, s := range noise {
				factor := 1 + s*min(max(rng.NormFloat64(), -3), 3)
				if rng.Float64() < c.Spikes.Rate {
					factor += c.Spikes.Least + c.Spikes.More*rng.ExpFloat64()
				}
				slowest = max(slowest, shares[i]*factor)
			}
			total += slowest * float64(len(noise)) / sum
		}
	}
	return total / float64(len(fleets)*60)
}

// The margin that rewards aim at costs at most 0.15% of goodput against the best of a
// brute-force search, with few spikes and with many.
func TestNoiseRoomIsNearTheBest(t *testing.T) {
	for _, rate := range []float64{0, 0.035, 0.1} {
		c := envtest.Preset(t, "steady")
		c.Spikes.Rate = rate
		rng := rand.New(rand.NewPCG(31, 32))
		fleets := make([][]float64, 150)
		for f := range fleets {
			fleets[f] = make([]float64, 16)
			for i := range fleets[f] {
				fleets[f][i] = c.DrawNoise(rng.NormFloat64())
			}
		}
		best, at := math.Inf(1), 0.0
		for m := 0.0; m <= 2.5; m += 0.125 {
			if time := fleetTime(&c, fleets, m); time < best {
				best, at = time, m
			}
		}
		margin := newStakes(spread(t, 16), &c, 16, cluster.Rule{Quorum: 1}).margin
		if got := fleetTime(&c, fleets, margin); got > best*1.0015 {
			t.Errorf("spike rate %v: margin %.2f takes %.4f, margin %.2f takes %.4f", rate, margin, got, at, best)
		}
	}
}

// spread is the spread of a tracker of n nodes.
func spread(t *testing.T, nodes int) float64 {
	return env.NewTracker(envtest.Mixed(t, nodes)).Spread()
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// paid is a round of 2 s: node 0 waits half a second of it, node 1 brings a quarter of its
// samples late, node 2 is away.
func paid(t *testing.T) (*cluster.Report, *cluster.Cluster) {
	c := envtest.Mixed(t, 3)
	c.GlobalBatch = 40
	for i := range c.Nodes {
		c.Nodes[i].Power = cluster.Power{Idle: 100, Busy: 200}
	}
	return &cluster.Report{Wait: 2 * time.Second, Accepted: 30, Counted: 27.5, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: 10, Samples: 10, Idle: 0.5},
		{Status: cluster.In, Size: 20, Samples: 20, Aged: 5},
		{Status: cluster.Absent, Idle: 2, Samples: 9, Aged: 9},
	}}, c
}

func TestTeamReward(t *testing.T) {
	report, c := paid(t)
	const drawn = 1.5*200 + 0.5*100 + 2*200 // joules of nodes 0 and 1
	for _, x := range []struct {
		what          string
		ideal, joules float64
		change        func()
		want          [env.Objectives]float64
	}{
		{"the round", 1, 25, func() {}, [env.Objectives]float64{0.5*27.5/40 - 1, -(0.5 / 2) / 2, -5.0 / 30, 1 - drawn/27.5/25}},
		{"a faster oracle", 0.8, 25, func() {}, [env.Objectives]float64{0.4*27.5/40 - 1, -0.125, -5.0 / 30, 1 - drawn/27.5/25}},
		{"no power known", 1, 0, func() {}, [env.Objectives]float64{0.5*27.5/40 - 1, -0.125, -5.0 / 30, 0}},
		{"better than the oracle", 1, 50, func() {}, [env.Objectives]float64{0.5*27.5/40 - 1, -0.125, -5.0 / 30, 1 - drawn/27.5/50}},
		{"four times the oracle's energy", 1, drawn / 27.5 / 4, func() {}, [env.Objectives]float64{0.5*27.5/40 - 1, -0.125, -5.0 / 30, -2}},
		{"idle for longer than the round", 1, 0, func() { report.Nodes[0].Idle = 7 }, [env.Objectives]float64{0.5*27.5/40 - 1, -0.5, -5.0 / 30, 0}},
		{"and its energy", 1, 25, func() {}, [env.Objectives]float64{0.5*27.5/40 - 1, -0.5, -5.0 / 30, 1 - 600/27.5/25}},
		{"nothing accepted", 1, 25, func() { report.Accepted, report.Counted = 0, 0 }, [env.Objectives]float64{-1, -0.5, 0, 0}},
		{"nobody there", 1, 25, func() {
			for i := range report.Nodes {
				report.Nodes[i].Status = cluster.Absent
			}
		}, [env.Objectives]float64{-1, 0, 0, 0}},
	} {
		x.change()
		got := teamReward(report, c, x.ideal, x.joules)
		for o, want := range x.want {
			if !near(got[o], want) {
				t.Errorf("%s: %s is %v, want %v", x.what, env.ObjectiveNames[o], got[o], want)
			}
		}
	}
}

// A node's waiting and energy are paid like its speed, its freshness by its own late samples.
func TestPayOfNodes(t *testing.T) {
	report, c := paid(t)
	e := &Episode{config: Config{Cluster: c}, nodes: []float32{-0.25, 9, 9, 9, -0.5, 9, 9, 9, 0, 9, 9, 9}}
	var s Step
	e.pay(&s, report, 1, 25)
	want := []float32{-0.25, -0.25, 0, -0.25, -0.5, -0.5, -0.25, -0.5, 0, 0, 0, 0}
	if !slices.Equal(e.nodes, want) {
		t.Errorf("nodes earn %v, want %v", e.nodes, want)
	}
	if s.Reward != teamReward(report, c, 1, 25) {
		t.Errorf("the step carries %v", s.Reward)
	}
	if got := staleShare(&cluster.NodeReport{Status: cluster.In, Aged: 3}); got != 0 {
		t.Errorf("no samples are %v stale", got)
	}
}

// The reward of a node that is at older work when the round opens: minus its idle time
// before the deadline, or minus what is late.
func TestLateReward(t *testing.T) {
	for _, x := range []struct{ deadline, left, work, noise, want float64 }{
		{1.2, 0.3, 0.5, 0.1, -0.4},    // surely in time, idle for 0.4
		{1, 0.8, 0.5, 0.1, -0.3},      // surely late: 0.6 of 0.5
		{1, 0.8, 1.5, 0.1, -0.6},      // at most one round's worth
		{1.25, 0.75, 0.5, 0.1, -0.15}, // as likely late as not
		{9, 0.25, 0.5, 0.1, -2},       // at worst
		{1.1, 0.5, 0.5, 0.2, -(0.1*(1-0.15865525393145707) + 0.15865525393145707*0.3)}, // one deviation before it is late
	} {
		if got := lateReward(x.deadline, x.left, x.work, x.noise); math.Abs(got-x.want) > 1e-7 {
			t.Errorf("deadline %v, %v left, work of %v, noise %v: %v, want %v", x.deadline, x.left, x.work, x.noise, got, x.want)
		}
	}
}

// The best margin by hand: 0.82 of the spread if the round waits for all nodes, less with
// spikes, and with a quorum by the grace.
func TestStakes(t *testing.T) {
	spikes := cluster.Conditions{Spikes: cluster.Spikes{Rate: 0.1, Least: 0.5, More: 0.25}}
	for _, x := range []struct {
		nodes                   int
		rule                    cluster.Rule
		conditions              cluster.Conditions
		margin, waiting, beyond float64
	}{
		{64, cluster.Rule{Quorum: 1}, cluster.Conditions{}, 0.82 * 2, 64, 0},
		{10, cluster.Rule{Quorum: 1}, spikes, 0.82 * 2 / 1.07, 10, 0}, // one spike a round
		{20, cluster.Rule{Quorum: 1}, spikes, 0.82 * 2 / 1.28, 20, 0.5 + 0.25*(math.Ln2+0.577)},
		{20, cluster.Rule{Quorum: 0.9}, spikes, 0.3 * 2, 0, 0},
		{20, cluster.Rule{Quorum: 0.9, Grace: 0.2}, spikes, 0.6 * 2, 0, 0},
		{20, cluster.Rule{Quorum: 0.9, Grace: 2}, spikes, 0.82 * 2, 0, 0},
	} {
		got := newStakes(2, &x.conditions, x.nodes, x.rule)
		if !near(got.margin, x.margin) || got.nodes != x.waiting || !near(got.beyond, x.beyond) {
			t.Errorf("%d nodes, %v: %+v, want margin %v, nodes %v, beyond %v", x.nodes, x.rule, got, x.margin, x.waiting, x.beyond)
		}
	}
}

// The own reward by its formula, worked out step by step.
func TestOwnRewardByHand(t *testing.T) {
	const noise, margin, ratio = 0.1, 1.0, 0.95
	tail := func(t float64) float64 { return 0.5 * math.Erfc(t/math.Sqrt2) }
	bell := func(t float64) float64 { return math.Exp(-t*t/2) / math.Sqrt(2*math.Pi) }
	waiting := 1 / tail(margin)
	loss := func(p float64) float64 { // waste, and the overshoot of the nodes that wait
		z := (p - 1) / noise
		return math.Log(p) + waiting*noise/p*(bell(z)-z*tail(z))
	}
	s := stakes{margin: margin, nodes: 20}
	if got, want := s.ownReward(ratio, ratio, noise), -(loss(ratio) - loss(1+margin*noise)); !near(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	s.beyond = 0.04 // all 20 wait beyond the spikes
	hidden := func(p float64) float64 {
		z := (1.04*p - 1) / noise
		return loss(p) + (20-waiting)*noise/p*(bell(z)-z*tail(z))
	}
	if got, want := s.ownReward(ratio, ratio, noise), -(hidden(ratio) - hidden(1+margin*noise)); !near(got, want) {
		t.Errorf("behind spikes %v, want %v", got, want)
	}
	s.nodes = 3 // fewer than those that wait anyway
	if got, want := s.ownReward(ratio, ratio, noise), -(loss(ratio) - loss(1+margin*noise)); !near(got, want) {
		t.Errorf("three nodes %v, want %v", got, want)
	}
}

// The oracle's round by hand: its finish, and its energy for a sample. Half of the nodes
// are not there yet.
func TestIdeal(t *testing.T) {
	c := envtest.Mixed(t, 4)
	for i := range c.Nodes {
		c.Nodes[i].Power = cluster.Power{Idle: 100, Busy: 200}
	}
	e, err := New(Config{Cluster: c, Conditions: cluster.Conditions{Joins: cluster.Joins{Share: 0.5, Rounds: 1000}}, Seed: 1, Rounds: 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(); err != nil {
		t.Fatal(err)
	}
	truth := e.sim.Truth()
	finish, joules, err := e.ideal(truth)
	if err != nil {
		t.Fatal(err)
	}
	last, drawn, samples := 0.0, 0.0, 0
	for i, b := range e.oracleSizes {
		if (b > 0) != e.sim.Present()[i] {
			t.Fatalf("node %d of %v gets %d samples", i, e.sim.Present(), b)
		}
		if b == 0 {
			continue
		}
		base := c.Nominal()[i]
		base.PerSample *= truth.Slowdown[i]
		takes := c.Nodes[i].Finish(base, b)
		last, samples = max(last, takes), samples+b
		drawn += 200*takes + 100*(finish-takes)
	}
	if !near(finish, last) || samples != 96 || !near(joules, drawn/96) {
		t.Errorf("%v s, %v joules a sample; want %v, %v", finish, joules, last, drawn/96)
	}
}
