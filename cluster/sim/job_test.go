package sim

import (
	"math"
	"testing"

	"evenkeel/cluster"
)

func TestTwoSpeedDrift(t *testing.T) {
	c := cluster.Conditions{Drift: cluster.Drift{SD: 0.05, Rounds: 20, SlowSD: 0.04, SlowRounds: 400}}
	var all, first moments
	const lags = 101
	var products [lags]moments
	past := make([]float64, 0, 400)
	walk(c, 4000, 400, func(_, round int, n *node) {
		v := math.Log(n.slowdown)
		if all.add(v); round == 0 {
			first.add(v)
			past = past[:0]
		}
		past = append(past, v)
		for _, k := range []int{10, 100} {
			if round >= k {
				products[k].add(v * past[round-k])
			}
		}
	})
	variance := 0.05*0.05 + 0.04*0.04
	near(t, "sd", all.sd(), math.Sqrt(variance), math.Sqrt(variance)*0.01)
	near(t, "sd at the start", first.sd(), math.Sqrt(variance), math.Sqrt(variance/2/first.n))
	for _, k := range []int{10, 100} {
		want := 0.05*0.05*math.Exp(-float64(k)/20) + 0.04*0.04*math.Exp(-float64(k)/400)
		near(t, "covariance", products[k].mean(), want, 0.02*want)
	}
}

func TestSpikesInClusters(t *testing.T) {
	c := cluster.Conditions{Spikes: cluster.Spikes{Rate: 0.02, Least: 0.1, More: 0.2, Again: 0.4}}
	var begin, again moments
	before := false
	walk(c, 2000, 400, func(_, round int, n *node) {
		if round > 0 {
			m := &begin
			if before {
				m = &again
			}
			m.count(n.factor > 1)
		}
		before = n.factor > 1
	})
	share(t, "begins", begin, 0.02)
	share(t, "goes on", again, 0.4)
}

// Levels of a run are log-normal over runs, the same for all its nodes, and change nothing
// but scales: what a node draws stays the same.
func TestJob(t *testing.T) {
	k := preset(t, "steady")
	k.Drift = cluster.Drift{SD: 0.03, Rounds: 40, SlowSD: 0.02, SlowRounds: 300}
	k.Episodes = []cluster.Episode{{Rate: 0.001, Rounds: 5, Excess: cluster.Spread{Median: 1}}}
	k.Job = cluster.Job{Noise: 0.5, Bias: 0.8, Spikes: 0.6, Episodes: 0.7}
	var noise, bias, spikes, episodes, rate, starts moments
	for seed := range uint64(20_000) {
		c := ofRun(&k, seed)
		level := c.Noise.Median / k.Noise.Median
		for what, is := range map[string]float64{"drift": c.Drift.SD / k.Drift.SD, "slow drift": c.Drift.SlowSD / k.Drift.SlowSD} {
			if math.Abs(is/level-1) > 1e-12 && c.Noise.Median < 0.5 {
				t.Fatalf("%s at %v, noise at %v", what, is, level)
			}
		}
		noise.add(math.Log(c.Drift.SD / k.Drift.SD))
		bias.add(math.Log(c.Bias / k.Bias))
		spikes.add(math.Log(c.Spikes.Rate / k.Spikes.Rate))
		episodes.add(math.Log(c.Episodes[0].Rate / k.Episodes[0].Rate))
		rate.add(c.Spikes.Rate / k.Spikes.Rate)
		starts.add(c.Episodes[0].Rate / k.Episodes[0].Rate)
		c.Noise.Median, c.Drift, c.Bias, c.Spikes.Rate, c.Episodes = k.Noise.Median, k.Drift, k.Bias, k.Spikes.Rate, k.Episodes
		if c.Scale != k.Scale || c.Spikes != k.Spikes || c.Noise != k.Noise {
			t.Fatal("something else changed")
		}
	}
	for _, x := range []struct {
		what string
		m    moments
		sd   float64
	}{{"noise", noise, 0.5}, {"bias", bias, 0.8}, {"spikes", spikes, 0.6}, {"episodes", episodes, 0.7}} {
		near(t, x.what, x.m.sd(), x.sd, x.sd/math.Sqrt(2*x.m.n))
	}
	// Sds have their median at the field, rates their mean.
	for what, m := range map[string]float64{"noise": noise.mean() / 0.5, "bias": bias.mean() / 0.8, "spikes": (rate.mean() - 1) / 0.66, "episodes": (starts.mean() - 1) / 0.8} {
		if math.Abs(m)*math.Sqrt(noise.n) > 4 {
			t.Errorf("%s: off by %v", what, m)
		}
	}
	if k.Episodes[0].Rate != 0.001 {
		t.Error("the rate of the conditions changed")
	}
	// The same nodes, louder.
	c := &cluster.Cluster{GlobalBatch: 8, Nodes: make([]cluster.Node, 8)}
	plain := k
	plain.Job, plain.Spikes, plain.Episodes = cluster.Job{}, cluster.Spikes{}, nil
	loud := plain
	loud.Job.Noise = 0.5
	a, b := New(c, plain, 3), New(c, loud, 3)
	level := b.conditions.Drift.SD / a.conditions.Drift.SD
	for range 20 {
		for i := range a.nodes {
			x, y := &a.nodes[i], &b.nodes[i]
			if got, want := math.Log(y.slowdown/y.constant), level*math.Log(x.slowdown/x.constant); math.Abs(got-want) > 1e-9 {
				t.Fatalf("drift %v, want %v", got, want)
			}
		}
		a.advance()
		b.advance()
	}
	if level == 1 {
		t.Error("no level was drawn")
	}
}

func TestStraggler(t *testing.T) {
	k := cluster.Straggler{Chance: 0.4, Excess: cluster.Spread{Median: 2, Sigma: 0.8}, SD: 0.4, Rounds: 5}
	c := &cluster.Cluster{GlobalBatch: 5, Nodes: make([]cluster.Node, 5)}
	var has, logs, lag, squares moments
	var which [5]moments
	for seed := range uint64(6000) {
		s := New(c, cluster.Conditions{Straggler: k}, seed)
		slow, last := -1, 0.0
		for round := range 40 {
			now := -1
			for i := range s.nodes {
				if s.nodes[i].slowdown != 1 {
					if now >= 0 {
						t.Fatal("two stragglers")
					}
					now = i
				}
			}
			if round == 0 {
				slow = now
				has.count(slow >= 0)
				for i := range which {
					which[i].count(i == slow)
				}
			}
			if now != slow {
				t.Fatalf("the straggler moved from %d to %d", slow, now)
			}
			if slow >= 0 {
				excess := s.nodes[slow].slowdown - 1
				if excess > 99 {
					t.Fatal(excess)
				}
				v := math.Log(excess / (2 * math.Exp(0.8*s.straggler.level)))
				if excess < 99 { // clipped ones are no normal numbers
					logs.add(v)
					if round > 0 {
						lag.add(v * last)
						squares.add(last * last)
					}
				}
				last = v
			}
			s.advance()
		}
	}
	share(t, "runs with a straggler", has, 0.4)
	for i := range which {
		share(t, "which", which[i], 0.4/5)
	}
	near(t, "wander", logs.sd(), 0.4, 0.004)
	near(t, "correlation", lag.mean()/squares.mean(), math.Exp(-1.0/5), 0.006)
	still := New(c, cluster.Conditions{Straggler: cluster.Straggler{Chance: 1, Excess: cluster.Spread{Median: 1}}}, 1)
	for range 3 {
		if v := still.nodes[still.straggler.node].slowdown; v != 2 {
			t.Fatal(v)
		}
		still.advance()
	}
}
