package bound

import (
	"math"
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/costmodel"
)

// floor is a lower bound on what a stage takes on a number of devices of a class, whatever its strategies. Its slices are
// sums over the layers before each layer.
type floor struct {
	class    int
	mixed    bool        // for a share of a stage of several classes; devices are then what the whole stage would need on this class
	devices  float64     // at least
	replica  float64     // devices of a replica, if mixed
	machines int         // number of the range of machines, if mixed
	forward  []float64   // seconds of a micro-batch
	first    []float64   // seconds of a micro-batch and of what comes once in an iteration
	steps    [][]float64 // by memory price: seconds of a micro-batch, and the price of the memory
	busy     [][]float64 // by memory price: seconds of all micro-batches and of what comes once, and the price of the memory
	memory   []float64   // bytes
	capacity float64     // bytes that layers may take
	unable   []int       // number of layers that cannot run like this
	send     []float64   // by the layer after the stage: seconds to send a micro-batch on and receive its gradient
	receive  []float64   // by the first layer: seconds to receive a micro-batch and send its gradient back
}

// layerFloor is the least that a layer takes on devices. Each term is the least by itself.
type layerFloor struct {
	forward, first, memory float64
	steps, busy            []float64 // by memory price
}

// kindFloors are the floors of each kind of layer over some placements of a stage, and what the stage sends.
type kindFloors struct {
	mixed            bool
	machines         int
	devices, replica float64
	kinds            []layerFloor
	send             [][2]float64 // by placement: samples over a link to another machine; within the machine (0: impossible)
	fill             float64      // samples that cross some link of the stage, at least
	within           bool         // the stage may share a machine with the one before
}

// floorer makes floors for micro-batches of so many samples.
type floorer struct {
	*model
	samples int
	micro   float64   // micro-batches
	prices  []float64 // of a byte, in seconds; the first is 0
	first   []int     // the first layer of each kind
	steady  bool      // every path has the same bandwidth for all messages
}

// bucket is the largest ratio of the numbers of devices that share one floor, which is that of the smallest number.
const bucket = 1.03

// floors are the floors of all classes and numbers of devices.
func (b *bounder) floors(samples int, memoryPrices []float64) []floor {
	f := floorer{model: &b.model, samples: samples, micro: float64(b.batch / samples), prices: memoryPrices}
	f.steady = !slices.ContainsFunc(f.paths(), func(p cluster.Path) bool { return !p.Steady() })
	for l, k := range f.kinds {
		if int(k) == len(f.first) {
			f.first = append(f.first, l)
		}
	}
	var all []floor
	for class, k := range f.classes {
		for n := 1; n <= k.Count; {
			to := max(n, int(float64(n)*bucket)) // up to here, numbers of devices share a floor
			layers := f.none()
			for ; n <= min(to, k.Count); n++ {
				if len(layers.send) == 0 {
					layers.devices = float64(n)
				}
				f.pure(&layers, class, n)
			}
			all = f.sum(all, class, &layers)
		}
	}
	if len(f.classes) > 1 && !slices.Equal(f.options.Replicas, []int{1}) {
		all = f.mixed(all)
	}
	return all
}

// none are infinite floors, to be lowered.
func (f *floorer) none() kindFloors {
	k := kindFloors{kinds: make([]layerFloor, len(f.first))}
	for i := range k.kinds {
		x := &k.kinds[i]
		x.forward, x.first, x.memory = math.Inf(1), math.Inf(1), math.Inf(1)
		x.steps, x.busy = slices.Repeat([]float64{math.Inf(1)}, len(f.prices)), slices.Repeat([]float64{math.Inf(1)}, len(f.prices))
	}
	return k
}

// pure lowers floors to those of a stage of n devices of a class, for every place and tensor degree.
func (f *floorer) pure(k *kindFloors, class, n int) {
	c := &f.classes[class]
	if r := f.options.Replicas; len(r) > 0 && !slices.ContainsFunc(f.TensorsOf(class), func(t int) bool { return n%t == 0 && slices.Contains(r, n/t) }) {
		return
	}
	k.within = k.within || n < c.PerMachine
	places := map[int][]costmodel.Group{} // by tensor degree
	wide := f.Wides(class)
	for t := 1; t <= n; t++ {
		if n%t != 0 || t > c.PerMachine && !slices.Contains(wide, t) {
			continue
		}
		for first := 0; first < c.PerMachine && first+n <= c.Count; first++ {
			g := costmodel.Group{Class: class, First: first, Replicas: n / t, Tensor: t, Shares: []int{(f.samples + n/t - 1) / (n / t)}}
			if costmodel.Within(first, n, t, c.PerMachine) && (f.Spread().Experts > 1 || !slices.ContainsFunc(places[t], func(o costmodel.Group) bool { return f.likePlaced(o, g) })) {
				places[t] = append(places[t], g)
			}
		}
		for _, g := range places[t] { // the group's tensor degree decides what is sent, even if no layer has that degree
			machines, most := f.Place(g)
			share := float64(g.Shares[0]) / f.Divisor(t)
			send := [2]float64{share * float64(most), 0}
			if n < c.PerMachine && machines == 1 {
				send[1] = share / float64(f.Spread().Context)
			}
			k.send = append(k.send, send)
		}
	}
	for kind, l := range f.first {
		for _, t := range f.degrees(l, class) {
			for _, g := range places[t] {
				groups := []costmodel.Group{g}
				if f.Divides(l) && f.Cannot(groups, g, l, t) != "" {
					continue
				}
				h := f.HoldOn(groups, 0, l, f.samples, costmodel.Strategy{})
				f.lower(&k.kinds[kind], costmodel.DeviceLayer{Layer: l, Class: class, Tensor: t, Share: g.Shares[0], Holding: &h, ToAll: f.ToAll(g, l, t, g.Shares[0])})
			}
		}
	}
}

// likePlaced says whether the places of two groups cost the same. With expert parallelism they may not.
func (f *floorer) likePlaced(a, b costmodel.Group) bool {
	m, n := f.Place(a)
	o, p := f.Place(b)
	return m == o && n == p
}

// degrees are the tensor degrees that a layer may have on a class.
func (f *floorer) degrees(layer, class int) []int {
	all := f.MeasuredTensors(layer, class)
	if o := f.options.Tensors; len(o) > 0 {
		all = slices.DeleteFunc(all, func(t int) bool { return !slices.Contains(o, t) })
	}
	return all
}

// lower lowers a floor to that of a layer on replicas of which one takes the given share of a micro-batch or more, for
// every strategy.
func (f *floorer) lower(x *layerFloor, at costmodel.DeviceLayer) {
	curve := f.Curve(at.Layer, at.Class, at.Tensor)
	run, ok := curve.At(at.Share)
	if !ok {
		return
	}
	// A larger share takes at least as much time, but may take less of the rest, or free more memory.
	for _, r := range curve {
		if r.MicroBatch > at.Share {
			run.Update, run.Fixed, run.Activation = min(run.Update, r.Update), min(run.Fixed, r.Fixed), min(run.Activation, r.Activation)
			run.Selective, run.Freed, run.Sequence = min(run.Selective, r.Selective), max(run.Freed, r.Freed), max(run.Sequence, r.Sequence)
		}
	}
	at.Run = run
	for _, sharding := range f.options.Shardings {
		for _, y := range f.Recomputations() {
			y.Sharding = sharding
			times, u := f.OnDevice(&at, y)
			memory, working := u.States+max(0, u.Activations), u.Working
			if y.Checkpoint {
				working += max(0, u.Again)
			}
			if !f.Holds(at.Class, memory+working) {
				continue
			}
			step, once := times.Step(), times.Once()
			x.forward, x.first, x.memory = min(x.forward, times.Forward()), min(x.first, step+once), min(x.memory, memory)
			for i, price := range f.prices {
				x.steps[i] = min(x.steps[i], step+price*memory/f.micro)
				x.busy[i] = min(x.busy[i], f.micro*step+once+price*memory)
			}
		}
	}
}

// mixed adds the floors of shares of stages of several classes. mixed.go explains how devices are counted.
func (f *floorer) mixed(all []floor) []floor {
	ranges := f.ranges(f.samples)
	for class, c := range f.classes {
		for t := 1; t <= c.PerMachine; t++ {
			largest := 0
			for _, l := range f.first {
				if slices.Contains(f.degrees(l, class), t) {
					curve := f.Curve(l, class, t)
					largest = max(largest, curve[len(curve)-1].MicroBatch)
				}
			}
			for k := 1; k <= min(largest, f.samples-1); k++ { // two replicas or more
				for i, m := range ranges {
					if m.most[class] >= t {
						layers := f.share(class, t, k, m)
						layers.machines = i
						all = f.sum(all, class, &layers)
					}
				}
			}
		}
	}
	return all
}

// share are the floors of one class's share of a stage of several classes: replicas of t devices with at most k samples each.
func (f *floorer) share(class, t, k int, m machines) kindFloors {
	devices := 0
	for _, n := range m.most {
		devices += n
	}
	layers := f.none()
	layers.mixed, layers.devices, layers.replica = true, float64(f.samples*t)/float64(k), float64(t)
	layers.send, layers.fill = [][2]float64{{float64(k) * float64(t) / f.Divisor(t), 0}}, math.Ceil(float64(f.samples)/float64(m.limit-1))
	for kind, l := range f.first {
		if slices.Contains(f.degrees(l, class), t) && !f.Divides(l) {
			h := f.Hold(l, t, devices, func(bytes float64) float64 { return f.across(class, float64(m.least), bytes*float64(t)) }, nil)
			f.lower(&layers.kinds[kind], costmodel.DeviceLayer{Layer: l, Class: class, Tensor: t, Share: k, Holding: &h})
		}
	}
	return layers
}

// across is the least time to gather a whole layer in a stage of this class and another one, over a number of machines (at
// least two): over the slowest path of the two classes.
func (f *floorer) across(class int, machines, bytes float64) float64 {
	if bytes == 0 {
		return 0
	}
	least := math.Inf(1)
	for other := range f.classes {
		if other != class {
			least = min(least, max(f.Between(class, class).Floor(bytes), f.Between(class, other).Floor(bytes), f.Between(other, other).Floor(bytes)))
		}
	}
	least *= (machines - 1) / machines
	if !f.steady { // a path that is slow for the whole layer may be quick for parts of it
		for _, p := range f.paths() {
			least = min(least, p.Floor(bytes/2))
		}
	}
	return f.options.Calibration.Links * least
}

// paths are all paths between machines.
func (f *floorer) paths() (all []cluster.Path) {
	for a := range f.classes {
		for b := range f.classes {
			all = append(all, f.Between(a, b))
		}
	}
	return all
}

// sum adds a floor with the sums over layers, unless no layer can run like this.
func (f *floorer) sum(all []floor, class int, k *kindFloors) []floor {
	x := floor{class: class, mixed: k.mixed, machines: k.machines, devices: k.devices, replica: k.replica, capacity: f.Room(class)}
	n := len(f.layers)
	sums := func() []float64 { return make([]float64, n+1) }
	x.forward, x.first, x.memory, x.send, x.receive, x.unable = sums(), sums(), sums(), sums(), sums(), make([]int, n+1)
	for range f.prices {
		x.steps, x.busy = append(x.steps, sums()), append(x.busy, sums())
	}
	some := false
	for l, kind := range f.kinds {
		y, add := &k.kinds[kind], func(sums []float64, v float64) { sums[l+1] = sums[l] + v }
		if l+1 < n {
			x.send[l+1] = f.sendFloor(class, k.send, f.layers[l].Output)
			if k.fill > 0 {
				least := math.Inf(1)
				for other := range f.classes {
					least = min(least, f.sendFloor(other, [][2]float64{{k.fill, 0}}, f.layers[l].Output))
				}
				x.send[l+1] = max(x.send[l+1], least)
			}
			x.receive[l+1] = f.receiveFloor(class, k.within, f.layers[l].Output)
		}
		if math.IsInf(y.forward, 1) {
			y, x.unable[l+1] = &layerFloor{steps: make([]float64, len(f.prices)), busy: make([]float64, len(f.prices))}, x.unable[l]+1
		} else {
			some, x.unable[l+1] = true, x.unable[l]
		}
		add(x.forward, y.forward)
		add(x.first, y.first)
		add(x.memory, y.memory)
		for i := range f.prices {
			add(x.steps[i], y.steps[i])
			add(x.busy[i], y.busy[i])
		}
	}
	if !some {
		return all
	}
	return append(all, x)
}

// sendFloor is the least time to send samples of so many bytes on and to receive their gradients, over some placements.
func (f *floorer) sendFloor(class int, ways [][2]float64, bytes float64) float64 {
	least := math.Inf(1)
	for _, w := range ways {
		if w[1] > 0 {
			least = min(least, f.Inside(class).Floor(bytes*w[1]))
		}
		for other := range f.classes {
			least = min(least, f.Between(class, other).Floor(bytes*w[0]))
		}
	}
	return 2 * f.options.Calibration.Links * least
}

// receiveFloor is the least time to receive samples of so many bytes and to send their gradients back. Whole samples come
// over at most one link for each machine, or from within the machine, where devices may divide them.
func (f *floorer) receiveFloor(class int, within bool, bytes float64) float64 {
	least := math.Inf(1)
	whole := 1.0
	for class := range f.classes {
		whole = min(whole, 1/f.Divisor(1+len(f.Wides(class))*f.Count())) // a replica over machines sends part of a sample from each
	}
	samples := max(whole, float64(f.samples)/float64(f.machines()))
	for other := range f.classes {
		least = min(least, f.Between(other, class).Floor(bytes*samples))
	}
	if within {
		others := f.classes[class].PerMachine - 1
		samples = max(1/f.Divisor(others), float64(f.samples)/float64(others))
		least = min(least, f.Inside(class).Floor(bytes*samples/float64(f.Spread().Context)))
	}
	return 2 * f.options.Calibration.Links * least
}
