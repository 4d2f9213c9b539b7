package search

// Shape is how many devices of each class a stage takes.
type Shape []int

// Point is one way to run a stage. Costs.Stage returns Pareto points: none is at least as good as another in both
// times.
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
	// Shapes are those a stage may have.
	Shapes() []Shape
	// Degrees are the fewest and the most stages.
	Degrees() (least, most int)
	// Fits reports whether a stage of this shape may take the devices before those that later stages took.
	Fits(shape int, used []int) bool
	// Stage prices layers from..to-1 on a shape, for a stage that is the behind-th from the end (1: the last). No
	// points: they do not fit memory, and neither do more layers on that shape.
	Stage(from, to, shape, behind int) []Point
	// Kind groups shapes that Boundary treats alike as the next stage.
	Kind(shape int) int
	// Boundary prices passing a micro-batch from a stage of this shape, which ends before layer, to a next stage of that
	// kind: the seconds during which each of the two is busy with it, and the seconds that count in the sum. used is the
	// devices that the next and all later stages took.
	Boundary(layer, shape, next int, used []int) (busy, sum float64)
	// Work is a lower bound on the device-seconds of a layer of a micro-batch on a class, +Inf where the class cannot run
	// it. With a(l) the least Work of layer l over the classes and v(c) the largest a(l)/Work(c, l), a stage with n[c]
	// devices of class c takes at least the sum of a(l) over its layers divided by the sum of n[c]*v(c). It prunes the
	// search.
	Work(class, layer int) float64
	// Least is a lower bound on the work of all layers together, in the units of a(l) above and with these speeds v of the
	// classes; 0 if nothing beyond the sum of a(l) is known.
	Least(speed []float64) float64
	// Total is the seconds of an iteration. It must not fall when any of the four numbers rises.
	Total(f Front) float64
	// Exact reports whether Stage has returned every Pareto point so far.
	Exact() bool
}

// Relaxer is a Costs that need not be exact: Relaxed prices every stage at or below all ways to run it, so that a search
// over these prices bounds all plans.
type Relaxer interface{ Relaxed() Costs }

// grainer is a Costs to which the position of free devices within machines matters: Grain is the number of devices of
// each class in a machine. Without it only the number of devices counts.
type grainer interface{ Grain() []int }
