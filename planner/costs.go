package planner

// Shape is how many devices of each class a stage may take.
type Shape []int

// Point is one way to run a stage: no other way is better in one number and as good in the other.
type Point struct {
	Step float64 // seconds of a micro-batch, forward and backward
	Tail float64 // seconds once per iteration: synchronisation that nothing hides, update
	Key  int32   // the way, as its Costs numbers it
}

// Front is what is known of consecutive last stages of a pipeline.
type Front struct {
	Max, Sum float64 // largest and summed seconds of a micro-batch; see Boundary
	Tail     float64 // the largest tail
	Stages   int
}

// Costs prices the parts of a plan under one preset condition (batch, micro-batch, memory budget, ...); Search needs
// nothing else, so that it serves every cost function. Classes of devices are numbers from 0.
type Costs interface {
	Layers() int
	// Pool is the devices of each class.
	Pool() []int
	// Shapes are those a stage may have.
	Shapes() []Shape
	// Degrees are the fewest and the most stages.
	Degrees() (least, most int)
	// Fits says whether a stage of this shape may take the devices before those that later stages took.
	Fits(shape int, used []int) bool
	// Stage prices layers from..to-1 on a shape where the stage is the behind-th from the end (1: the last). Empty:
	// they do not fit memory; then neither do more layers on that shape.
	Stage(from, to, shape, behind int) []Point
	// Kind groups shapes that are the same to Boundary as what follows.
	Kind(shape int) int
	// Boundary is what it takes to pass a micro-batch on, from a stage of this shape that ends before layer to the next
	// one, of that kind: the seconds that each of the two is busy with it, and those that count in the sum. used is what
	// the next and all later stages took.
	Boundary(layer, shape, next int, used []int) (busy, sum float64)
	// Work is what a layer of a micro-batch takes at least, in device-seconds of a class, +Inf where that class cannot:
	// a stage with n[c] devices of class c takes at least the sum of a(l) over its layers, divided by the sum of
	// n[c]*v(c), where a(l) is the least Work of l over the classes and v(c) the largest a(l)/Work(c, l). It serves to
	// cut the search.
	Work(class, layer int) float64
	// Least is the least work of all layers together, in the units of a(l) above and with these speeds v of the classes:
	// 0 where nothing more is known than the sum of a(l).
	Least(speed []float64) float64
	// Total is the seconds of an iteration: it must not fall when any of the four numbers rises.
	Total(f Front) float64
	// Exact says whether Stage has returned every Pareto point so far.
	Exact() bool
}
