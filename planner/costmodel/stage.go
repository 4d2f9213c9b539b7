package costmodel

import "slices"

// Stage is a stage configuration: consecutive layers, the device groups that train them, and a strategy for each layer.
type Stage struct {
	From, To   int // layers From..To-1
	Groups     []Group
	Strategies []Strategy
}

// MaxGroups is the largest number of device groups of a stage; the search mixes two.
const MaxGroups = 4

// Group is a device group: devices of one class that work on a stage as replicas of Tensor devices each.
type Group struct {
	Class    int // in the cluster's topology
	First    int // first device, counted through all machines of the class
	Replicas int
	Tensor   int   // tensor-parallel degree
	Shares   []int // samples that each replica takes of a micro-batch
}

// Devices is the number of devices of the group.
func (g Group) Devices() int { return g.Replicas * g.Tensor }

// Sharding says what the data-parallel replicas of a layer divide among themselves. Each replica holds all the rest.
type Sharding string

// Kinds of sharding. Optimizer is ZeRO stage 1, Gradients is stage 2 (the optimizer's state and gradients), Full is stage 3 (fully
// sharded data parallel).
const (
	Replicated Sharding = "none"
	Optimizer  Sharding = "optimizer"
	Gradients  Sharding = "gradients"
	Full       Sharding = "full"
)

// Recomputations are the ways to recompute layers that the options allow, as strategies without other settings.
func (m *Model) Recomputations() []Strategy {
	none, selective, full := Strategy{}, Strategy{Selective: true}, Strategy{Checkpoint: true}
	switch m.options.Checkpoint {
	case "never":
		return []Strategy{none}
	case "always":
		return []Strategy{full}
	case "selective":
		return []Strategy{selective}
	}
	if m.Selects() {
		return []Strategy{none, selective, full}
	}
	return []Strategy{none, full}
}

// Shardings are all kinds of sharding; each shards more than the one before.
func Shardings() []Sharding { return []Sharding{Replicated, Optimizer, Gradients, Full} }

// Strategy is how a layer is trained.
type Strategy struct {
	Tensor     int // tensor-parallel degree; 0: that of each group
	Sharding   Sharding
	Checkpoint bool // keep only the layer's input, and recompute its activations for the backward pass
	Selective  bool // recompute only the core of attention
}

// StageCost is the cost of a stage, term by term. Times are of a micro-batch at the slowest replica, except Sync and
// Update.
type StageCost struct {
	Forward   float64 `json:"forward"`  // compute, tensor-parallel communication included
	Backward  float64 `json:"backward"` // the same; without recomputation
	Recompute float64 `json:"again"`    // forward passes repeated for checkpointed layers
	Gather    float64 `json:"gather"`   // exchange of sharded weights and gradients in every micro-batch, beyond what compute hides
	Convert   float64 `json:"convert"`  // redistributing activations between layers of different tensor degree, both ways
	Send      float64 `json:"send"`     // activations to the next stage and gradients back
	Sync      float64 `json:"sync"`     // once per iteration: gradients between replicas, beyond what compute hides
	Update    float64 `json:"update"`   // once per iteration: the optimizer
	Memory    []Usage `json:"memory"`   // of a device of each group
}

// Step is the seconds of a micro-batch, forward and backward, without sending it on.
func (c StageCost) Step() float64 {
	return c.Forward + c.Backward + c.Recompute + c.Gather + c.Convert
}

// Usage is the peak memory of a device, in bytes.
type Usage struct {
	Device      string  `json:"device"`
	States      float64 `json:"states"`      // weights, gradients, optimizer
	Activations float64 `json:"activations"` // of all micro-batches in flight
	Working     float64 `json:"working"`     // recomputed activations, communication buffers, reserve
	Limit       float64 `json:"limit"`
}

// Peak is the sum of all parts.
func (u Usage) Peak() float64 { return u.States + u.Activations + u.Working }

// Even divides samples over replicas, the larger parts first.
func Even(samples, replicas int) []int {
	all := make([]int, replicas)
	for i := range all {
		all[i] = samples / replicas
		if i < samples%replicas {
			all[i]++
		}
	}
	return all
}

func (s *Stage) classes() []int {
	var all []int
	for _, g := range s.Groups {
		all = append(all, g.Class)
	}
	return all
}

// Unshard gives layers that one device holds alone the sharding none: there is nothing to divide.
func (m *Model) Unshard(s *Stage) {
	s.Strategies = slices.Clone(s.Strategies)
	for i := range s.Strategies {
		if n, _, _ := replicas(s.Groups, 1, s.Strategies[i], 0); n*m.spread.Context == 1 {
			s.Strategies[i].Sharding = Replicated
		}
	}
}

// useGroupTensor moves a tensor degree from the strategies to the group if all layers have it. At a larger degree a stage whose devices
// send whole samples would send more.
func (s *Stage) useGroupTensor(samples int, whole bool) {
	t := s.Strategies[0].Tensor
	if t == 0 || whole && t > s.Groups[0].Tensor || slices.ContainsFunc(s.Strategies, func(y Strategy) bool { return y.Tensor != t }) {
		return
	}
	g := &s.Groups[0]
	g.Replicas, g.Tensor = g.Devices()/t, t
	g.Shares = Even(samples, g.Replicas)
	for i := range s.Strategies {
		s.Strategies[i].Tensor = 0
	}
}
