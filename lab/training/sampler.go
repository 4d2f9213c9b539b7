package training

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/env/episode"
)

// Sampler draws the clusters and conditions of training: workloads and devices that are not
// held out, 2 to 10,000 nodes, and conditions around the presets but wider, so that the policy
// also trains on worse conditions than those of the comparisons.
type Sampler struct {
	catalogue *profile.Catalogue
	workloads []string
	devices   map[string][]profile.Device // that run the workload
}

// NewSampler returns a sampler of all devices and workloads of the catalogue, a user's own
// included, except the held-out split.
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

// largeShare is the share of episodes with 512 nodes and more: rare, because one costs as
// much as dozens of others.
const largeShare = 0.02

// smallShare is the share of episodes that are drawn with 2 to 8 nodes, where each node is a large part of the cluster and
// other choices are right. Other episodes may have so few nodes too.
const smallShare = 0.2

// mostWork bounds the rounds of an episode times its nodes, if it is longer than usual.
const mostWork = 50_000

// realMixes are the shares of devices in real clusters, in GPUs: alibaba's 2023 and
// 2026 traces (alibaba/clusterdata @ 7a6c496e) and Sia's simulated cluster
// (siasosp23/artifacts), for the devices of the catalogue. In the second, A10 count as A10G,
// and A100 and A800 of 80 GB as 40 GB.
var realMixes = []map[string]float64{
	{"t4": 842, "v100-16g": 399, "a10g": 2, "p100": 265, "v100": 399},
	{"a10g": 2494, "a100-40g": 3632},
	{"t4": 24, "a100-40g": 16},
}

// mix draws the shares of the devices: half the time those of a real cluster if it has two
// of them, else anything from nearly one kind to equal shares.
func (s *Sampler) mix(rng *rand.Rand, devices []profile.Device) []float64 {
	shares := make([]float64, len(devices))
	fleet, known := realMixes[rng.IntN(len(realMixes))], 0
	for i, d := range devices {
		if shares[i] = fleet[d.Name]; shares[i] > 0 {
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

// Shares of the drawn clusters that depart from the catalogue's measurements, so that training has extreme jobs:
// short and long rounds, dominating overheads, wrong or missing profiles.
const (
	pacedShare    = 0.5  // times scaled, so that a round takes leastRound to mostRound
	leastRound    = 0.05 // seconds
	mostRound     = 100  // seconds
	heavyShare    = 0.25 // an additional overhead of up to about mostOverhead of a round
	mostOverhead  = 0.9
	shapelessRate = 0.15 // overheads that differ from the profiles'
	hiddenShare   = 0.2  // all or about a third of the profiles hidden
)

// depart changes a cluster of catalogue profiles.
func (s *Sampler) depart(rng *rand.Rand, c *cluster.Cluster, model profile.Workload) error {
	pace, extra, wrong := 1.0, 0.0, 0.0
	sizes := make([]int, len(c.Nodes))
	finish, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
	if err != nil {
		return err
	}
	if rng.Float64() < pacedShare {
		pace = logUniform(rng, leastRound, mostRound) / finish
	}
	if rng.Float64() < heavyShare {
		share := mostOverhead * rng.Float64()
		extra = finish * share / (1 - share)
	}
	if rng.Float64() < shapelessRate {
		wrong = 0.3 * finish * rng.Float64()
	}
	shown, actual := map[string]*profile.Profile{}, map[string]*profile.Profile{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if shown[n.Device] == nil {
			// Devices differ in their overhead, and in how wrong their profile is.
			own := extra * (0.5 + rng.Float64())
			if shown[n.Device], err = changed(n.Profile, pace, own+wrong*rng.Float64()); err != nil {
				return err
			}
			if actual[n.Device], err = changed(n.Profile, pace, own+wrong*rng.Float64()); err != nil {
				return err
			}
		}
		n.Profile = shown[n.Device]
		if wrong > 0 {
			n.Hidden.Profile = actual[n.Device]
		}
		n.Network *= pace
	}
	if rng.Float64() < hiddenShare {
		s.hide(rng, c, model)
	}
	return nil
}

// changed is a profile with overhead seconds added to every point, then scaled by pace.
func changed(p *profile.Profile, pace, overhead float64) (*profile.Profile, error) {
	if pace == 1 && overhead == 0 {
		return p, nil
	}
	points := append([]profile.Point(nil), p.Points...)
	for k := range points {
		points[k].Seconds = pace * (points[k].Seconds + overhead)
	}
	return profile.New(p.Device, p.Workload, points, p.Source)
}

// hide hides the profiles of all nodes, or of about a third, from the controller.
func (s *Sampler) hide(rng *rand.Rand, c *cluster.Cluster, model profile.Workload) {
	share := 1.0
	if rng.Float64() < 0.5 {
		share = 0.3
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; rng.Float64() < share {
			device, _ := s.catalogue.Device(n.Device)
			if n.Hidden.Profile == nil {
				n.Hidden.Profile = n.Profile
			}
			n.Profile, n.TFLOPS = nil, device.TFLOPS(model.DType)
		}
	}
}
