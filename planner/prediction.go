package planner

// Prediction is what the cost model expects of a plan, in seconds and bytes.
type Prediction struct {
	Seconds   float64     `json:"seconds"`             // of an iteration: the sum, (micro-batches - 1) times the largest step, the largest tail
	Simulated float64     `json:"simulated,omitempty"` // of an iteration by the event simulation of its schedule; 0: not simulated
	Idle      float64     `json:"idle"`                // share of the iteration in which the used devices wait, on average
	Stages    []StageCost `json:"stages"`
}

// StageCost is the cost of a stage, term by term. Times but Sync and Update are for a micro-batch, at the slowest
// replica.
type StageCost struct {
	Forward  float64 `json:"forward"`  // compute, tensor-parallel communication included
	Backward float64 `json:"backward"` // the same; without what is computed again
	Again    float64 `json:"again"`    // forward passes repeated for checkpointed layers
	Gather   float64 `json:"gather"`   // exchange of fully sharded layers' weights and gradients, beyond what compute hides
	Convert  float64 `json:"convert"`  // dividing activations anew between layers of different tensor degree, both ways
	Send     float64 `json:"send"`     // activations to the next stage and gradients back
	Sync     float64 `json:"sync"`     // once per iteration: gradients between replicas, beyond what compute hides
	Update   float64 `json:"update"`   // once per iteration: the optimizer
	Memory   []Usage `json:"memory"`   // of a device of each group
}

// Usage is the memory of a device at its peak, in bytes.
type Usage struct {
	Device      string  `json:"device"`
	States      float64 `json:"states"`      // weights, gradients, optimizer
	Activations float64 `json:"activations"` // of all micro-batches in flight
	Working     float64 `json:"working"`     // activations computed again, communication buffers, reserve
	Limit       float64 `json:"limit"`
}

// Peak is the sum of all parts.
func (u Usage) Peak() float64 { return u.States + u.Activations + u.Working }

// Step is the seconds of a micro-batch, forward and backward, without sending it on.
func (c StageCost) Step() float64 { return c.Forward + c.Backward + c.Again + c.Gather + c.Convert }
