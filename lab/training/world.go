package training

import (
	"math/rand/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

// How often a drawn cluster departs from the catalogue's measurements, so that a policy has met extreme jobs:
// rounds of any length, dominating overheads, wrong or missing profiles.
const (
	pacedShare    = 0.5  // of clusters: all times scaled, so that a round takes between these seconds
	leastRound    = 0.05 // seconds
	mostRound     = 100
	heavyShare    = 0.25 // an overhead of up to mostOverhead of a round on top
	mostOverhead  = 0.9
	shapelessRate = 0.15 // nodes whose overhead is not what their profile says
	hiddenShare   = 0.2  // no profiles, of all or of a third of the nodes
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
			// Devices differ in their overhead, and so does what is known of it.
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

// changed is a profile with so many seconds of overhead more, and all of it times pace.
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
