package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/cluster"
)

func init() { effort.jobs, effort.walks, resamples = 20, 4, 40 } // the whole takes half a minute

// batches writes micro-batches of which a known share of the variance is their own. Between windows all
// is as much slower as nothing within one is.
func batches(rng *rand.Rand) string {
	var b strings.Builder
	b.WriteString("trace,step,dp_rank,pp_rank,mb_id,fwd_ms,bwd_ms\nSE,1,0,0,0,1,1\n")
	for dp := range 6 {
		for pp := range 3 {
			for window := range 4 {
				for step := range 30 {
					common := math.Sqrt(1-knownOwn)*rng.NormFloat64() + 40*float64(window)
					for mb := range 4 {
						f := math.Exp(0.02 * (common + 5*float64(mb) + math.Sqrt(knownOwn)*rng.NormFloat64()))
						fmt.Fprintf(&b, "ST,%d,%d,%d,%d,%g,%g\n", 1000*window+2*step, dp, pp, mb, 60*f, 130*f)
					}
				}
			}
		}
	}
	return b.String()
}

const knownOwn = 0.4

func TestWithin(t *testing.T) {
	d, err := readData(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.windows) != 72 || len(d.windows[0]) != 30 || len(d.windows[0][0]) != 4 {
		t.Fatalf("%d windows", len(d.windows))
	}
	near(t, "own share", ownShare(d.windows), knownOwn, 0.06)
	own, _ := within(d.windows)
	near(t, "own deviation", math.Sqrt(own), 0.02*math.Sqrt(knownOwn), 0.05)
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) {
		t.Errorf("%s: %.5g, made with %.5g", what, got, want)
	}
}

// coefficient is the variation over ten times.
func coefficient(times []float64) float64 {
	sum, square := 0.0, 0.0
	for _, v := range times {
		sum += v
	}
	for _, v := range times {
		square += sq(v - sum/10)
	}
	return math.Sqrt(square/9) / (sum / 10)
}

// made is jobs of ten workers: constant departures, noise, and what spoil does to the first one's time.
func made(rng *rand.Rand, jobs, rounds int, bias, noise func() float64, spoil func(job int) func() float64) []job {
	out := make([]job, jobs)
	for j := range out {
		b, n, first := bias(), noise(), spoil(j)
		var constant, times [10]float64
		for i := range constant {
			constant[i] = b * rng.NormFloat64()
		}
		for range rounds {
			for i := range times {
				times[i] = math.Exp(constant[i] + n*rng.NormFloat64())
			}
			times[0] *= first()
			out[j].cov = append(out[j].cov, coefficient(times[:]))
		}
	}
	return out
}

func lognormal(rng *rand.Rand, middle, sigma float64) func() float64 {
	return func() float64 { return middle * math.Exp(sigma*rng.NormFloat64()) }
}

func always(v float64) func() float64 { return func() float64 { return v } }

func nothing(int) func() float64 { return always(1) }

func TestLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	bias, biasSD, changing, changingSD := levels(made(rng, 1000, 300, lognormal(rng, 0.03, 0.3), lognormal(rng, 0.02, 0.4), nothing))
	near(t, "bias", bias, 0.03, 0.12)
	near(t, "its spread", biasSD, 0.3, 0.15)
	near(t, "the changing part", changing, 0.02, 0.08)
	near(t, "its spread", changingSD, 0.4, 0.15)
	if b, _, c, _ := levels(made(rng, 60, 300, always(0), always(0.04), nothing)); b > 0.012 {
		t.Errorf("bias %v where there is none", b)
	} else {
		near(t, "noise alone", c, 0.04, 0.05)
	}
	if b, s, _, _ := levels([]job{{cov: []float64{0.01, 0.1, 0.02, 0.08}}}); b != 0 || s != 0 {
		t.Error(b, s)
	}
}

func TestTwoSpeeds(t *testing.T) {
	curve := func(a, t1, b, t2 float64) []float64 {
		r := []float64{1}
		for k := 1; k <= lags; k++ {
			r = append(r, a*math.Exp(-float64(10*k)/t1)+b*math.Exp(-float64(10*k)/t2))
		}
		return r
	}
	a, t1, b, t2 := twoSpeeds(curve(0.6, 20, 0.3, 300))
	near(t, "quick share", a, 0.6, 0.04)
	near(t, "quick rounds", t1, 20, 0.06)
	near(t, "slow share", b, 0.3, 0.06)
	near(t, "slow rounds", t2, 300, 0.1)
	a, t1, b, t2 = twoSpeeds(curve(0.8, 20, 0.3, 300)) // more than all
	if math.Abs(a+b-1) > 1e-9 || a < 0 || b < 0 {
		t.Errorf("%v (%v rounds) and %v (%v rounds)", a, t1, b, t2)
	}
}

func TestStragglerLaw(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	jobs := made(rng, 400, 400, always(0.01), always(0.01), func(j int) func() float64 {
		if j%4 > 0 {
			return always(1)
		}
		level, x, keep := 3*math.Exp(0.8*rng.NormFloat64()), rng.NormFloat64(), math.Exp(-1./6)
		return func() float64 {
			x = keep*x + math.Sqrt(1-keep*keep)*rng.NormFloat64()
			return 1 + level*math.Exp(0.4*x)
		}
	})
	share, middle, sigma, wander, rounds := stragglerLaw(jobs)
	near(t, "share", share, 0.25, 0.06) // the mildest do not reach slowJob
	near(t, "excess", middle, 3, 0.2)
	near(t, "its spread", sigma, 0.8, 0.2)
	near(t, "wandering", wander, 0.4, 0.1)
	near(t, "rounds", rounds, 6, 0.15)
}

func TestBurstRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const rate, length, spread = 0.003, 6.0, 0.8
	jobs := made(rng, 300, 1000, always(0.01), always(0.01), func(int) func() float64 {
		mine, left := rate*math.Exp(spread*rng.NormFloat64()-spread*spread/2), 0
		return func() float64 {
			if left > 0 {
				left--
			} else if rng.Float64() < mine {
				for left = 0; rng.Float64() > 1/length; left++ {
				}
			} else {
				return 1
			}
			return 2.5
		}
	})
	perWorker, rounds, level := burstRate(jobs)
	near(t, "rate", perWorker, rate/10, 0.15) // one worker of ten has them
	near(t, "rounds", rounds, length, 0.1)
	near(t, "spread", level, spread, 0.15)
}

func TestSpikesOfJobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	const share, again = 0.01, 0.3
	var walks, steps []series
	for range 60 {
		var s series
		x := 0.0
		for range 300 {
			x = 0.98*x + 0.02*rng.NormFloat64()
			v := math.Exp(x)
			if rng.Float64() < share {
				v *= 1.5
			}
			s.times = append(s.times, v)
		}
		walks = append(walks, s)
	}
	near(t, "isolated", isolated(walks, 0.15), share, 0.2)
	for range 2000 {
		var s series
		mine, spiked := 0.005*math.Exp(1.1*rng.NormFloat64()-0.605), false
		for range 205 {
			chance := mine
			if spiked {
				chance = again
			}
			v := 1 + 0.01*rng.NormFloat64()
			if spiked = rng.Float64() < chance; spiked {
				v += 0.5
			}
			s.times = append(s.times, v)
		}
		steps = append(steps, s)
	}
	a, level := clusters(steps)
	near(t, "again", a, again, 0.1)
	near(t, "spread", level, 1.1, 0.1)
	var even []series // a rate like any other
	for range 1000 {
		s := series{times: make([]float64, 205)}
		for k := range s.times {
			s.times[k] = 1 + 0.01*rng.NormFloat64()
			if rng.Float64() < 0.005 {
				s.times[k] += 0.5
			}
		}
		even = append(even, s)
	}
	if _, level := clusters(even); level > 0.35 {
		t.Errorf("spread %v where there is none", level)
	}
}

func TestRefitted(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	d, err := readData(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	params, err := deriveJobs(d)
	if err != nil || len(params) != 25 {
		t.Fatal(err, len(params))
	}
	c := preset(t, "production")
	before := c.Episodes[0]
	jobs := made(rng, 60, 400, lognormal(rng, 0.05, 0.3), lognormal(rng, 0.1, 0.3), nothing)
	got := refitted(jobs, c)
	near(t, "together", math.Sqrt(sq(got.Noise.Median)+sq(got.Drift.SD)+sq(got.Drift.SlowSD)), 0.1, 0.15)
	near(t, "noise of drift", got.Noise.Median/got.Drift.SD, c.Noise.Median/c.Drift.SD, 1e-9)
	if c.Episodes[0] != before || got.Spikes != c.Spikes || got.Straggler.Chance > 0.05 {
		t.Errorf("%+v", got)
	}
}

func preset(t *testing.T, name string) cluster.Conditions {
	t.Helper()
	c, err := cluster.Preset(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
