package search

// Shape is how many devices of each class a stage takes.
type Shape []int

// Point is one way to run a stage. Costs.Stage returns Pareto points: none is at least as good as another in both times.
type Point struct {
	Step         float64 // seconds of a micro-batch, forward and backward
	PerIteration float64 // seconds once per iteration: exposed synchronisation, optimizer update
	Key          int32   // identifies the point to its Costs
}

// Front sums up the last stages of a pipeline.
type Front struct {
	Max, Sum     float64 // largest and summed seconds of a micro-batch; see Boundary
	PerIteration float64 // the largest per-iteration cost
	Stages       int
}

// Costs prices the parts of a plan under one preset condition (batch, micro-batch, memory budget, ...). Classes of
// devices are numbered from 0.
type Costs interface {
	Layers() int
	// Pool is the number of devices of each class.
	Pool() []int
	// Grain is the number of devices of each class in a machine.
	Grain() []int
	// Shapes are those a stage may have.
	Shapes() []Shape
	// Degrees are the fewest and the most stages that a plan may have.
	Degrees() (least, most int)
	// Fits says whether a stage of this shape may take the devices just before those that later stages took; used counts these by class.
	Fits(shape int, used []int) bool
	// Stage prices layers from..to-1 on a shape, for a stage that is the behind-th from the end (1: the last). No
	// points: they do not fit memory, and neither do more layers on that shape.
	Stage(from, to, shape, behind int) []Point
	// Kind groups shapes that Boundary treats alike as the next stage.
	Kind(shape int) int
	// Boundary prices passing a micro-batch from a stage of this shape, which ends before layer, to a next stage of kind next, there and back:
	// busy is the seconds that it adds to the step of each of the two, sum those that it adds to the sum of steps. used counts the devices that
	// the next and all later stages took.
	Boundary(layer, shape, next int, used []int) (busy, sum float64)
	// Work is a lower bound on the device-seconds of a layer of a micro-batch on a class, +Inf where the class cannot run it. It prunes the search:
	// with a(l) the least Work of layer l over the classes, and v(c) the largest a(l)/Work(c, l), the speed of class c, a stage with n[c] devices
	// of class c takes at least the sum of a(l) over its layers divided by the sum of n[c]*v(c).
	Work(class, layer int) float64
	// Least is a lower bound on the work of all layers together, in the units of a(l) and at these speeds v of the classes; 0 if nothing beyond the
	// sum of a(l) is known.
	Least(speed []float64) float64
	// Total is the cost of a plan, such as the seconds of an iteration. It must not fall when any of the four numbers rises.
	Total(f Front) float64
	// Exact says whether Stage has returned every Pareto point so far.
	Exact() bool
}
