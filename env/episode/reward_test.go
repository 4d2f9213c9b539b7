package episode

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

func TestOwnReward(t *testing.T) {
	for _, noise := range []float64{0.005, 0.03, 0.12} {
		for _, room := range []float64{0.5, 1.2, 2} {
			stakes := stakes{room: room}
			reward := func(ratio float64) float64 { return stakes.ownReward(ratio, ratio, noise) }
			best := 1 + room*noise
			if got := reward(best); got != 0 {
				t.Errorf("noise %v, room %v: reward %v at the best parameter", noise, room, got)
			}
			// Falls on both sides, outside a flat top narrower than half a deviation: room is
			// the optimum to first order in the noise.
			for _, side := range []float64{-1, 1} {
				last := 0.0
				for k := 1; k <= 40; k++ {
					got := reward(best * (1 + side*noise*0.5*float64(k)))
					if 0.5*noise*float64(k) >= 0.9 && side < 0 {
						break // no parameter is below zero
					}
					if !(got < last) && got != -worst {
						t.Errorf("noise %v, room %v: reward %v after %v, %v half deviations off", noise, room, got, last, side*float64(k))
					}
					if got < -worst || got > 0 {
						t.Errorf("reward %v", got)
					}
					last = got
				}
			}
			// Overload (a parameter below the truth) keeps everybody waiting.
			for _, off := range []float64{2, 4, 8} {
				under, over := reward(best*(1-off*noise)), reward(best*(1+off*noise))
				if off*noise < 0.9 && !(under < over) {
					t.Errorf("noise %v, room %v, %v deviations: overload costs %v, waste %v", noise, room, off, under, over)
				}
			}
		}
	}
	one := stakes{room: 1}
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
	usual := stakes{room: 1.2}
	fits := 1 * (1 + 1.2*0.03)
	if got := usual.ownReward(fits, fits/2, 0.03); got != 0 {
		t.Errorf("a jump after the measurement costs %v", got)
	}
	if stale, kept := usual.ownReward(fits, fits/1.09, 0.03), usual.ownReward(fits, fits, 0.03); !(stale < kept) {
		t.Errorf("9%% of drift costs %v, none %v", stale, kept)
	}
}

// The flat top of ownReward lies where the loss it is built on does: the best parameter
// by a plain search is within a few hundredths of a deviation.
func TestOwnRewardsOptimum(t *testing.T) {
	for _, noise := range []float64{0.01, 0.05, 0.1} {
		for _, room := range []float64{0.8, 1.5} {
			best, at := math.Inf(1), 0.0
			for z := room - 1; z < room+1; z += 0.002 {
				ratio := 1 + z*noise
				t := (ratio - 1) / noise
				if loss := math.Log(ratio) + noise*(density(t)-t*above(t))/above(room)/ratio; loss < best {
					best, at = loss, z
				}
			}
			if math.Abs(at-room) > 0.1 {
				t.Errorf("noise %v: the least loss is at %v deviations, the reward takes %v", noise, at, room)
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
		hides := stakes{room: s.room}
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

// fleetTime is the mean time of a round in which everybody keeps m deviations of room,
// relative to one without noise: 16 equal nodes, noise and spikes as conditions say.
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

// The room that rewards aim at costs at most 0.15% of goodput against the best of a
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
		room := newStakes(spread(t, 16), &c, 16, cluster.Rule{Quorum: 1}).room
		if got := fleetTime(&c, fleets, room); got > best*1.0015 {
			t.Errorf("spike rate %v: room %.2f takes %.4f, room %.2f takes %.4f", rate, room, got, at, best)
		}
	}
}

// spread is a tracker's for so many nodes.
func spread(t *testing.T, nodes int) float64 {
	return env.NewTracker(envtest.Mixed(t, nodes)).Spread()
}
