package agent

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/env"
)

// Scenarios draws the clusters and conditions that training sees: workloads and devices
// that are not held out, 2 to 512 nodes, conditions around the presets
// but wider, so that a policy has met worse than it will be judged on.
type Scenarios struct {
	catalogue *profile.Catalogue
	workloads []string
	devices   map[string][]profile.Device // that run the workload
}

// NewScenarios collects what the catalogue offers for training: all but the held-out
// split, a user's own devices and workloads included.
func NewScenarios(catalogue *profile.Catalogue) (*Scenarios, error) {
	s := &Scenarios{catalogue: catalogue, devices: map[string][]profile.Device{}}
	for _, w := range catalogue.Workloads() {
		if w.Split == profile.HeldOut {
			continue
		}
		var devices []profile.Device
		for _, d := range catalogue.Devices() {
			if d.Split == profile.HeldOut {
				continue
			}
			if _, err := catalogue.Lookup(d.Name, w.Name); err == nil {
				devices = append(devices, d)
			}
		}
		if len(devices) > 0 {
			s.workloads = append(s.workloads, w.Name)
			s.devices[w.Name] = devices
		}
	}
	if len(s.workloads) == 0 {
		return nil, fmt.Errorf("agent: the catalogue holds no profile of the training split")
	}
	return s, nil
}

// Episode draws an episode of so many rounds.
func (s *Scenarios) Episode(rng *rand.Rand, rounds int) env.Config {
	for {
		c := s.cluster(rng)
		if c.CheckCapacity(nil) != nil {
			continue
		}
		return env.Config{Cluster: c, Conditions: conditions(rng), Seed: rng.Uint64(), Rounds: rounds, Weights: weights(rng)}
	}
}

func (s *Scenarios) cluster(rng *rand.Rand) *cluster.Cluster {
	workload := s.workloads[rng.IntN(len(s.workloads))]
	devices := s.devices[workload]
	count := int(logUniform(rng, 2, 513))
	// A mix of the devices, from nearly one kind to all alike.
	mix, sum := make([]float64, len(devices)), 0.0
	for i := range mix {
		mix[i] = rng.ExpFloat64()
		sum += mix[i]
	}
	c := &cluster.Cluster{Workload: workload, GlobalBatch: int(float64(count) * logUniform(rng, 6, 64))}
	for range count {
		at, k := rng.Float64()*sum, 0
		for k < len(mix)-1 && at >= mix[k] {
			at -= mix[k]
			k++
		}
		p, err := s.catalogue.Lookup(devices[k].Name, workload)
		if err != nil {
			continue // NewScenarios saw it
		}
		c.Nodes = append(c.Nodes, cluster.Node{
			Name: fmt.Sprintf("%s-%d", devices[k].Name, len(c.Nodes)), Device: devices[k].Name,
			Profile: p, Limit: p.MemoryLimit(devices[k].MemoryBytes),
		})
	}
	if rng.Float64() < 0.15 {
		c.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.7 + 0.25*rng.Float64()}, GraceShare: 0.3 * rng.Float64()}
	}
	return c
}

// conditions draws around the presets.
func conditions(rng *rand.Rand) cluster.Conditions {
	c := cluster.Conditions{
		Bias:   logUniform(rng, 0.02, 0.2),
		Noise:  cluster.Spread{Median: logUniform(rng, 0.01, 0.06), Sigma: 0.3 + 1.1*rng.Float64()},
		Spikes: cluster.Spikes{Rate: logUniform(rng, 0.002, 0.06), Least: 0.1, More: logUniform(rng, 0.1, 0.4)},
	}
	start := logUniform(rng, 0.1, 10)
	c.Scale = cluster.NoiseScale{Start: start, End: start * logUniform(rng, 1, 100), Rounds: logUniform(rng, 200, 20000)}
	long := cluster.Episode{
		Rate: logUniform(rng, 0.001, 0.01), Rounds: logUniform(rng, 60, 500),
		Excess: cluster.Spread{Median: logUniform(rng, 0.1, 1), Sigma: 0.5 + 0.4*rng.Float64()},
	}
	burst := cluster.Episode{
		Rate: logUniform(rng, 0.005, 0.05), Rounds: logUniform(rng, 4, 25),
		Excess: cluster.Spread{Median: logUniform(rng, 0.5, 2), Sigma: 0.5 + 0.4*rng.Float64()},
	}
	drift := cluster.Drift{SD: logUniform(rng, 0.02, 0.15), Rounds: logUniform(rng, 20, 200)}
	switch k := rng.IntN(20); {
	case k < 4: // steady
	case k < 9:
		c.Drift = drift
	case k < 14:
		c.Episodes = []cluster.Episode{long}
	case k < 18:
		c.Episodes = []cluster.Episode{burst}
	default:
		c.Drift, c.Episodes = drift, []cluster.Episode{long}
		c.Failures = cluster.Failures{Rate: 0.001, Rounds: 30, Silent: 0.3}
	}
	return c
}

// weights draws preferences: speed alone as often as any mix.
func weights(rng *rand.Rand) [env.Objectives]float64 {
	if rng.Float64() < 0.5 {
		return [env.Objectives]float64{1, 0, 0}
	}
	var w [env.Objectives]float64
	sum := 0.0
	for i := range w {
		w[i] = rng.ExpFloat64()
		sum += w[i]
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

func logUniform(rng *rand.Rand, low, high float64) float64 {
	return low * math.Exp(rng.Float64()*math.Log(high/low))
}
