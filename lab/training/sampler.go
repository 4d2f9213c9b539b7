package training

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/env/episode"
)

// Sampler draws the clusters and conditions that training sees: workloads and devices
// that are not held out, 2 to 10,000 nodes, and conditions around the presets but wider,
// so that a policy has met worse than it will be judged on.
type Sampler struct {
	catalogue *profile.Catalogue
	workloads []string
	devices   map[string][]profile.Device // that run the workload
}

// NewSampler returns a sampler of all the catalogue's devices and workloads except the
// held-out split; a user's own are included.
func NewSampler(catalogue *profile.Catalogue) (*Sampler, error) {
	s := &Sampler{catalogue: catalogue, devices: map[string][]profile.Device{}}
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
		return nil, fmt.Errorf("training: the catalogue holds no profile of the training split")
	}
	return s, nil
}

// Episode draws an episode of so many rounds. The error wraps cluster.ErrCapacity if none of
// many drawn clusters can hold its global batch.
func (s *Sampler) Episode(rng *rand.Rand, rounds int) (episode.Config, error) {
	var err error
	for range 1000 {
		var c *cluster.Cluster
		if c, err = s.cluster(rng); errors.Is(err, cluster.ErrCapacity) {
			continue
		} else if err != nil {
			return episode.Config{}, fmt.Errorf("training: %w", err)
		}
		rounds := min(rounds, max(trainUsual, mostWork/len(c.Nodes)))
		return episode.Config{Cluster: c, Conditions: conditions(rng), Seed: rng.Uint64(), Rounds: rounds, Weights: weights(rng)}, nil
	}
	return episode.Config{}, fmt.Errorf("training: no training cluster: %w", err)
}

func (s *Sampler) cluster(rng *rand.Rand) (*cluster.Cluster, error) {
	workload := s.workloads[rng.IntN(len(s.workloads))]
	devices := s.devices[workload]
	count := int(logUniform(rng, 2, 513))
	switch k := rng.Float64(); {
	case k < largeShare:
		count = int(logUniform(rng, 512, 10_001))
	case k < largeShare+smallShare:
		count = int(logUniform(rng, 2, 9))
	}
	mix, sum := s.mix(rng, devices), 0.0
	for _, share := range mix {
		sum += share
	}
	c := &cluster.Cluster{Workload: workload, GlobalBatch: int(float64(count) * logUniform(rng, 6, 64))}
	model, _ := s.catalogue.Workload(workload)
	for range count {
		at, k := rng.Float64()*sum, 0
		for k < len(mix)-1 && at >= mix[k] {
			at -= mix[k]
			k++
		}
		p, err := s.catalogue.Lookup(devices[k].Name, workload)
		if err != nil {
			continue // cannot happen: NewSampler looked it up
		}
		c.Nodes = append(c.Nodes, cluster.Node{
			Name: fmt.Sprintf("%s-%d", devices[k].Name, len(c.Nodes)), Device: devices[k].Name,
			Profile: p, Limit: cluster.MemoryLimit(p, model, devices[k].MemoryBytes, count), Power: cluster.Power{Idle: devices[k].IdleWatts, Busy: devices[k].BusyWatts},
		})
	}
	if err := s.depart(rng, c, model); err != nil {
		return nil, err
	}
	switch k := rng.Float64(); {
	case k < 0.15:
		c.Collect = cluster.Collect{Quorum: cluster.Quorum{Share: 0.5 + 0.45*rng.Float64()}, GraceShare: 0.4 * rng.Float64()}
	case k < 0.55:
		c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	}
	return c, nil
}

// largeShare is the share of episodes with 512 nodes and more: rare, as one costs as much
// as dozens of others.
const largeShare = 0.02

// smallShare is the share of episodes with 2 to 8 nodes, beside those that any episode has: in these a node is a large part
// of the cluster, and other choices are right.
const smallShare = 0.2

// mostWork bounds the rounds of an episode times its nodes, beyond those of a usual one.
const mostWork = 50_000

// realMixes are the shares of devices in real clusters, in GPUs: alibaba's 2023 and
// 2026 traces (alibaba/clusterdata @ 7a6c496e) and Sia's simulated cluster
// (siasosp23/artifacts), as far as the catalogue has the device or, for the second, its
// sibling of the same generation (A10 for A10G, A100 and A800 of 80 GB for 40 GB).
var realMixes = []map[string]float64{
	{"t4": 842, "v100-16g": 399, "a10g": 2, "p100": 265, "v100": 399},
	{"a10g": 2494, "a100-40g": 3632},
	{"t4": 24, "a100-40g": 16},
}

// mix draws the shares of the devices: half the time those of a real cluster, else anything
// from nearly one kind to equal shares.
func (s *Sampler) mix(rng *rand.Rand, devices []profile.Device) []float64 {
	shares := make([]float64, len(devices))
	real, known := realMixes[rng.IntN(len(realMixes))], 0
	for i, d := range devices {
		if shares[i] = real[d.Name]; shares[i] > 0 {
			known++
		}
	}
	if rng.Float64() < 0.5 && known >= 2 {
		return shares
	}
	for i := range shares {
		shares[i] = rng.ExpFloat64()
	}
	return shares
}

// conditions draws conditions around the presets.
func conditions(rng *rand.Rand) cluster.Conditions {
	c := cluster.Conditions{
		Bias:   logUniform(rng, 0.02, 0.2),
		Noise:  cluster.Spread{Median: logUniform(rng, 0.01, 0.06), Sigma: 0.3 + 1.1*rng.Float64()},
		Spikes: cluster.Spikes{Rate: logUniform(rng, 0.002, 0.06), Least: 0.1, More: logUniform(rng, 0.1, 0.4)},
	}
	if rng.Float64() < 0.12 {
		c.Noise = cluster.Spread{Median: logUniform(rng, 0.05, 0.5), Sigma: 0.5 * rng.Float64()}
	}
	if rng.Float64() < 0.08 {
		c.Spikes = cluster.Spikes{}
	}
	start := logUniform(rng, 0.1, 100) // at the beginning, in the middle or at the end of a training
	c.Scale = cluster.NoiseScale{Start: start, End: start * logUniform(rng, 1, 100), Rounds: logUniform(rng, 200, 20000), Norms: 0.2 * rng.Float64()}
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
	switch k := rng.Float64(); {
	case k < 0.06: // hangs among them
		c.Failures = cluster.Failures{Rate: logUniform(rng, 0.0003, 0.003), Rounds: logUniform(rng, 10, 100), Silent: rng.Float64()}
	case k < 0.12:
		c.Diurnal = cluster.Diurnal{Amplitude: logUniform(rng, 0.05, 0.4), Rounds: logUniform(rng, 50, 1000)}
	case k < 0.18:
		c.Creep = cluster.Creep{Share: 0.1 + 0.4*rng.Float64(), Rounds: logUniform(rng, 50, 500), Most: logUniform(rng, 1.5, 5)}
	case k < 0.26:
		c.Wrong = cluster.Wrong{Share: 0.1 + 0.4*rng.Float64(), Factor: logUniform(rng, 1.3, 4)}
	}
	return c
}

// weights draws preferences: half the time speed alone, else any mix.
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
