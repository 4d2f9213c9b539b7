package sim

import (
	"math"
	"slices"
	"testing"

	"evenkeel/cluster"
)

// walk moves nodes under conditions through rounds and shows every one to see.
func walk(c cluster.Conditions, nodes, rounds int, see func(node, round int, n *node)) {
	for i := range nodes {
		n := newNode(&c, 1, 7, i, nodes)
		for r := range rounds {
			see(i, r, &n)
			n.advance(&c)
		}
	}
}

// near wants a value within so many standard errors of what theory says, and the
// standard error itself small against it, so that the test means something.
func near(t *testing.T, what string, got, want, standardError float64) {
	t.Helper()
	if math.Abs(got-want) > 4*standardError {
		t.Errorf("%s: %.5g, want %.5g +- %.2g", what, got, want, standardError)
	}
	if standardError > 0.05*want {
		t.Errorf("%s: too few draws", what)
	}
}

type moments struct{ n, sum, squares float64 }

func (m *moments) add(v float64) { m.n++; m.sum += v; m.squares += v * v }
func (m *moments) mean() float64 { return m.sum / m.n }
func (m *moments) sd() float64   { return math.Sqrt(m.squares/m.n - m.mean()*m.mean()) }

func preset(t *testing.T, name string) cluster.Conditions {
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEpisodes(t *testing.T) {
	for _, name := range []string{"interference", "bursts", "colocated", "powercap"} {
		e := preset(t, name).Episodes[0]
		spells(t, name, e, cluster.Conditions{Episodes: []cluster.Episode{e}}, func(n *node) spell { return n.episodes[0] })
	}
}

// spells wants those of nodes under conditions to be as the episode says.
func spells(t *testing.T, name string, e cluster.Episode, c cluster.Conditions, of func(n *node) spell) {
	t.Helper()
	var starts, eligible float64
	var lengths, logs moments
	begun, left := 0., 0
	const nodes = 1500
	walk(c, nodes, 3000, func(_, round int, n *node) {
		s := of(n)
		if want := 1.; s.left > 0 && n.slowdown != s.slow || s.left == 0 && n.slowdown != want {
			t.Fatalf("slowdown %v in %+v", n.slowdown, s)
		}
		switch {
		case round == 0:
			if s.left > 0 {
				begun++
			}
		case left == 0: // it was idle and may have begun one
			if eligible++; s.left > 0 {
				starts++
				lengths.add(float64(s.left))
				if s.slow < 1+8 {
					logs.add(math.Log(s.slow - 1))
				}
			}
		}
		left = s.left
	})
	near(t, name+": starts", starts/eligible, e.Rate, math.Sqrt(e.Rate/eligible))
	near(t, name+": length", lengths.mean(), e.Rounds, e.Rounds/math.Sqrt(lengths.n))
	if at := e.AtStart + e.Rate; math.Abs(begun/nodes-at) > 4*math.Sqrt(at/nodes) {
		t.Errorf("%s: %v begin in one, want %v", name, begun/nodes, at)
	}
	// The clipped upper tail (eightfold) is left out, and with it a little of the median.
	if median := math.Exp(logs.mean()); math.Abs(median/e.Excess.Median-1) > 0.12 {
		t.Errorf("%s: median excess %v, want %v", name, median, e.Excess.Median)
	}
}

func TestDrift(t *testing.T) {
	c := cluster.Conditions{Drift: preset(t, "drift").Drift}
	var all, first moments
	lag, last := [2]float64{}, 0.
	walk(c, 2000, 200, func(_, round int, n *node) {
		v := math.Log(n.slowdown)
		if all.add(v); round == 0 {
			first.add(v)
		} else {
			lag[0], lag[1] = lag[0]+v*last, lag[1]+last*last
		}
		last = v
	})
	near(t, "sd", all.sd(), c.Drift.SD, c.Drift.SD*0.01)
	near(t, "sd at the start", first.sd(), c.Drift.SD, c.Drift.SD/math.Sqrt(2*first.n))
	near(t, "correlation of neighbours", lag[0]/lag[1], math.Exp(-1/c.Drift.Rounds), 0.0005)
}

func TestNoise(t *testing.T) {
	k := preset(t, "steady")
	c := cluster.Conditions{Noise: k.Noise}
	var deviations []float64
	var standard moments
	walk(c, 20_000, 5, func(_, round int, n *node) {
		if round == 0 {
			deviations = append(deviations, n.noise)
		}
		standard.add((n.factor - 1) / n.noise)
		if n.noise < 0.001 || n.noise > 0.2 || math.Abs(n.factor-1) > 3*n.noise+1e-15 {
			t.Fatalf("noise %v, factor %v", n.noise, n.factor)
		}
	})
	slices.Sort(deviations)
	near(t, "median", deviations[len(deviations)/2], k.Noise.Median, 0.01*k.Noise.Median*k.Noise.Sigma)
	// The quartiles of a log-normal lie 0.6745 sigma from the median.
	near(t, "quartile", math.Log(deviations[len(deviations)/2]/deviations[len(deviations)/4]), 0.6745*k.Noise.Sigma, 0.012)
	near(t, "sd of a round", standard.sd(), 0.9933, 0.003) // cut at three deviations
	if math.Abs(standard.mean()) > 0.02 {
		t.Errorf("noise shifts the mean by %v", standard.mean())
	}
}

func TestSpikes(t *testing.T) {
	k := preset(t, "steady").Spikes
	var spikes moments
	rounds := 0.
	walk(cluster.Conditions{Spikes: k}, 1000, 500, func(_, _ int, n *node) {
		if rounds++; n.factor > 1 {
			spikes.add(n.factor - 1)
		}
	})
	near(t, "rate", spikes.n/rounds, k.Rate, math.Sqrt(k.Rate/rounds))
	near(t, "mean", spikes.mean(), k.Least+k.More, k.More/math.Sqrt(spikes.n))
}

func TestBias(t *testing.T) {
	k := preset(t, "steady")
	var logs moments
	walk(cluster.Conditions{Bias: k.Bias}, 20_000, 1, func(_, _ int, n *node) { logs.add(math.Log(n.slowdown)) })
	near(t, "sd", logs.sd(), k.Bias, k.Bias/math.Sqrt(2*logs.n))
	if math.Abs(logs.mean()) > 0.002 {
		t.Errorf("mean %v", logs.mean())
	}
}

func TestFailures(t *testing.T) {
	k := cluster.Failures{Rate: 0.05, Rounds: 50, Silent: 0.3}
	var fails, at, silent, absence moments
	walk(cluster.Conditions{Failures: k}, 1000, 200, func(_, _ int, n *node) {
		if n.fails < 0 {
			fails.add(0)
			return
		}
		fails.add(1)
		at.add(n.fails)
		absence.add(float64(n.absence))
		if n.silent {
			silent.add(1)
		} else {
			silent.add(0)
		}
	})
	near(t, "rate", fails.mean(), k.Rate, math.Sqrt(k.Rate/fails.n))
	near(t, "when", at.mean(), 0.5, 0.29/math.Sqrt(at.n))
	near(t, "silent", silent.mean(), k.Silent, 0.46/math.Sqrt(silent.n))
	near(t, "absence", absence.mean(), k.Rounds, k.Rounds/math.Sqrt(absence.n))
}

func TestJoins(t *testing.T) {
	k := preset(t, "joins").Joins
	const nodes = 10_000
	var away moments
	walk(cluster.Conditions{Joins: k}, nodes, 1, func(i, _ int, n *node) {
		switch late := i >= nodes-int(k.Share*nodes); {
		case !late && n.away != 0, n.away >= k.Rounds:
			t.Fatalf("node %d comes after %d rounds", i, n.away)
		case late:
			away.add(float64(n.away))
		}
	})
	near(t, "joining", away.mean(), float64(k.Rounds-1)/2, float64(k.Rounds)*0.29/math.Sqrt(away.n))
	walk(cluster.Conditions{Joins: cluster.Joins{Share: 1, Rounds: 10}}, 3, 1, func(i, _ int, n *node) {
		if i == 0 && n.away != 0 {
			t.Error("the first node is always there")
		}
	})
}
