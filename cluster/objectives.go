package cluster

import (
	"slices"

	"evenkeel/internal/badinput"
)

// Objectives are the weights of the objectives, each 0..1e9; only their proportions count.
// The zero value means speed alone.
type Objectives struct {
	Speed     float64 `yaml:"speed,omitempty" json:"speed"`
	Waiting   float64 `yaml:"waiting,omitempty" json:"waiting"`
	Freshness float64 `yaml:"freshness,omitempty" json:"freshness"`
	Energy    float64 `yaml:"energy,omitempty" json:"energy"`
}

// Validate reports every weight out of range, with its name.
func (o Objectives) Validate() error {
	var f badinput.Faults
	f.Within("speed", o.Speed, 0, 1e9)
	f.Within("waiting", o.Waiting, 0, 1e9)
	f.Within("freshness", o.Freshness, 0, 1e9)
	f.Within("energy", o.Energy, 0, 1e9)
	return f.Err()
}

// Check reports a weight for which the cluster has no data: energy needs a node whose
// power is known.
func (o Objectives) Check(c *Cluster) error {
	var f badinput.Faults
	known := func(n Node) bool { return n.Power != (Power{}) }
	if o.Energy > 0 && !slices.ContainsFunc(c.Nodes, known) {
		f.Add("energy", "is %s, but no node has a known power; give nodes a power: {idle, busy}", badinput.Number(o.Energy))
	}
	return f.Err()
}

// Weights are the objectives scaled to sum to 1, in the order speed, waiting, freshness,
// energy.
func (o Objectives) Weights() [4]float64 {
	sum := o.Speed + o.Waiting + o.Freshness + o.Energy
	if !(sum > 0) {
		return [4]float64{1}
	}
	return [4]float64{o.Speed / sum, o.Waiting / sum, o.Freshness / sum, o.Energy / sum}
}
