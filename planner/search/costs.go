package search

// Shape is how many devices of each class a stage takes.
type Shape []int

// Point is one way to run a stage. Costs.Stage returns Pareto points: no point is at least as good as another in both times.
type Point struct {
	Step         float64 // seconds of a micro-batch, forward and backward
	PerIteration float64 // seconds once per iteration: exposed synchronisation, optimizer update
	Key          int32   // identifies the point to its Costs
}

// Sending is what a boundary adds to a plan, in seconds of a micro-batch: Busy to the step of each of its two stages, Passing to
// the sum of steps. The step of the stage before it counts as at least Link.
type Sending struct{ Busy, Passing, Link float64 }

// Front sums up the last stages of a pipeline.
type Front struct {
	Max, Sum     float64 // largest and summed seconds of a micro-batch; see Boundary
	PerIteration float64 // the largest per-iteration cost
	Stages       int
}

// Costs prices the parts of a plan under one preset condition (batch, micro-batch, memory budget, ...). Classes of devices are
// numbered from 0.
type Costs interface {
	Layers() int
	// Pool is the number of devices of each class.
	Pool() []int
	// Grain is the number of devices of each class in a machine.
	Grain() []int
	// Shapes are the possible shapes of a stage.
	Shapes() []Shape
	// Degrees are the fewest and the most stages that a plan may have.
	Degrees() (least, most int)
	// Fits says whether a stage of this shape may take the devices directly before those of later stages. used counts the
	// devices of later stages by class.
	Fits(shape int, used []int) bool
	// Stage prices layers from..to-1 on a shape, for a stage that is the behind-th from the end (1: the last). It returns no
	// points if they do not fit into memory; then more layers do not fit either.
	Stage(from, to, shape, behind int) []Point
	// Kind is a number for each shape. Boundary treats next stages of the same kind alike.
	Kind(shape int) int
	// Boundary prices sending a micro-batch from a stage of this shape, which ends before layer, to a next stage of kind next,
	// and its gradient back. used counts the devices of the next and all later stages.
	Boundary(layer, shape, next int, used []int) Sending
	// Work is a lower bound on the device-seconds that a class takes for a layer of a micro-batch; +Inf if it cannot run the
	// layer. It prunes the search: let a(l) be the least Work of layer l over the classes, and the speed v(c) of class c the
	// largest a(l)/Work(c, l). Then a stage with n[c] devices of class c takes at least the sum of a(l) over its layers,
	// divided by the sum of n[c]*v(c).
	Work(class, layer int) float64
	// Least is a lower bound on the work of all layers together, in the unit of a(l), at these speeds of the classes. 0: nothing
	// better than the sum of a(l) is known.
	Least(speed []float64) float64
	// Total is the cost of a plan, such as the seconds of an iteration. It must not fall when one of the four numbers rises.
	Total(f Front) float64
	// Exact says whether Stage has returned every Pareto point so far.
	Exact() bool
}
