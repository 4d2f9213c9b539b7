package serve

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/cluster/profile"
)

// handJob is a job of 90 rounds of 128 samples on four ranks, as experiments/live/control.py emulates it: after half of the rounds the fastest and
// the slowest change places. Noise is lognormal, the same for all who share out the samples.
type handJob struct {
	fixed float64 // seconds of a share beside its samples, which take 1 ms each at pace 1
	noise [][4]float64
}

const handRounds, handBatch = 90, 128

func newHandJob(fixed, noise float64, seed uint64) *handJob {
	j, rng := &handJob{fixed: fixed, noise: make([][4]float64, handRounds)}, rand.New(rand.NewPCG(seed, 1))
	for r := range j.noise {
		for i := range j.noise[r] {
			j.noise[r][i] = math.Exp(noise*rng.NormFloat64() - noise*noise/2)
		}
	}
	return j
}

func (j *handJob) pace(rank, round int) float64 {
	if round >= handRounds/2 && rank%3 == 0 {
		rank = 3 - rank
	}
	return []float64{1, 1.5, 2, 4}[rank]
}

// run plays the job, whose sizes next finds by a round's seconds, and returns its seconds.
func (j *handJob) run(next func(round int, shares []int, seconds []float64) []int) (whole float64) {
	shares := slices.Repeat([]int{handBatch / 4}, 4)
	for r := range handRounds {
		took := make([]float64, 4)
		for i, s := range shares {
			took[i] = j.fixed + 0.001*j.pace(i, r)*j.noise[r][i]*float64(s)
		}
		whole += slices.Max(took)
		shares = next(r, shares, took)
	}
	return whole
}

// byHand is proportional control: shares by the samples per second of the newest round.
func byHand(_ int, shares []int, took []float64) []int {
	sum, left := 0.0, handBatch
	for i, s := range shares {
		sum += float64(s) / took[i]
	}
	next := make([]int, len(shares))
	for i, s := range shares {
		next[i] = max(1, int(math.RoundToEven(handBatch*float64(s)/took[i]/sum)))
		left -= next[i]
	}
	next[slices.Index(next, slices.Max(next))] += left
	return next
}

// served returns the service's way: its sizes come a round late, but at once after an uneven round and the one after it, for which the ranks wait 3 ms
// (python/evenkeel/tuner/round_exchange.py).
func served(t *testing.T, trained *agent.Trained, waits *float64) func(int, []int, []float64) []int {
	ranks := make([]live.Rank, 4)
	for i := range ranks {
		ranks[i].Name = strconv.Itoa(i)
	}
	g, err := form(&Config{Trained: trained, Catalogue: profile.Embedded(), Ranks: len(ranks)}, Settings{GlobalBatch: handBatch}, ranks, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.rounds.Hand(g.plan, 0)
	ran, coming, usual, again := g.plan.Own(), g.plan.Own(), 1.0, false
	return func(round int, _ []int, took []float64) []int {
		report := &live.Report{Round: round, Plan: ran.Number, WaitSeconds: slices.Max(took)}
		sum, shares := 0.0, 0.0
		for i, s := range ran.Sizes {
			report.Ranks = append(report.Ranks, nil)
			if s > 0 {
				report.Ranks[i] = &live.RankReport{Seconds: took[i], Samples: s, MicroSteps: 1}
				sum, shares = sum+took[i], shares+1
			}
		}
		_, read, err := g.rounds.Take(report, 0)
		if err != nil {
			t.Fatal(err)
		}
		g.rounds.Observe(read)
		plan, err := g.control.Next(read, g.rounds.Present())
		if err != nil {
			t.Fatal(err)
		}
		g.rounds.Hand(plan, 0)
		ratio := report.WaitSeconds / (sum / shares)
		uneven := ratio >= 1.5*usual
		usual += 0.1 * (ratio - usual)
		ran, coming = cluster.Plan{Number: coming.Number, Sizes: coming.Sizes}, plan.Own()
		if uneven || again {
			ran = coming
			*waits += 0.003
		}
		again = uneven
		return ran.Sizes
	}
}

// Proportional control finds four unknown ranks' paces in a round each time, but follows their noise. The service is level with it without noise, and
// ahead with noise. The more of a round does not depend on the sizes, the less there is to win.
func TestAgainstProportionalControl(t *testing.T) {
	trained, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ fixed, noise, least float64 }{
		{0.001, 0, 0.985}, {0.001, 0.1, 1.01}, {0.001, 0.3, 1.03}, {0.018, 0, 0.99}, {0.018, 0.3, 1}, {0.053, 0, 1}, {0.053, 0.3, 0.99},
	} {
		sum := 0.0
		const seeds = 20
		for seed := range uint64(seeds) {
			j, waits := newHandJob(c.fixed, c.noise, seed), 0.0
			sum += math.Log(j.run(byHand) / (j.run(served(t, trained, &waits)) + waits))
		}
		if speed := math.Exp(sum / seeds); speed < c.least {
			t.Errorf("overhead %g s, noise %g: %.3f of proportional control's speed, want %g", c.fixed, c.noise, speed, c.least)
		}
	}
}

// Noise alone leaves shares within a quarter of the best, and a round in which a rank takes three times as long moves them for one round.
func TestSharesStay(t *testing.T) {
	trained, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	best := []float64{53, 35, 26, 13}
	for seed := range uint64(20) {
		j := newHandJob(0.001, 0.1, seed)
		j.noise[20][1] *= 3
		next := served(t, trained, new(float64))
		j.run(func(round int, shares []int, took []float64) []int {
			for i, s := range shares {
				if round > 12 && round != 21 && round < handRounds/2 && math.Abs(float64(s)/best[i]-1) > 0.25 {
					t.Errorf("seed %d, round %d: shares %v, want about %v", seed, round, shares, best)
				}
			}
			return next(round, shares, took)
		})
	}
}
