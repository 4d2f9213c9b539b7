package bound

import (
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// floor is what stages on so many devices of a class take at least, whatever the strategies of their layers: sums over the layers
// before each. It serves LowerBound.
type floor struct {
	class    int
	mixed    bool        // a share of stages of several classes: devices are those of a whole stage like it
	devices  float64     // at least
	replica  float64     // devices of one, if mixed
	reach    int         // in which of the reaches, if mixed
	forward  []float64   // seconds of a micro-batch
	first    []float64   // seconds of a micro-batch and of what comes once
	steps    [][]float64 // by memory price: seconds of a micro-batch, with the price of the memory
	busy     [][]float64 // by memory price: seconds of all micro-batches and of what comes once, with the price of the memory
	memory   []float64   // bytes
	capacity float64     // bytes that layers may take
	unable   []int       // layers that cannot run so
	send     []float64   // by the layer after the stage: seconds of a micro-batch, there and back
	receive  []float64   // by the first layer: the same, from the stage before
}

// layerFloor is the least that a layer takes on devices.
type layerFloor struct {
	forward, first, memory float64
	steps, busy            []float64 // by memory price
}

// placing is a way to lie in machines.
type placing struct {
	machines, most int
	group          costmodel.Group
}

// floors makes the floors for micro-batches of so many samples. memoryPrices are seconds for a byte; the first is 0.
func (m *model) floors(globalBatch, samples int, memoryPrices []float64) []floor {
	f := floorer{model: *m, samples: samples, micro: float64(globalBatch / samples), prices: memoryPrices}
	f.steady = !slices.ContainsFunc(f.paths(), func(p cluster.Path) bool { return !p.Steady() })
	for class := range m.classes {
		f.over = append(f.over, m.Wides(class))
	}
	for l, k := range m.kindOf {
		if int(k) == len(f.first) {
			f.first = append(f.first, l)
		}
	}
	var all []floor
	for class, k := range m.classes {
		for n := 1; n <= k.Count; {
			to := max(n, int(float64(n)*bucket)) // numbers of devices that are priced as the least of them
			layers := f.none()
			for ; n <= min(to, k.Count); n++ {
				if len(layers.send) == 0 {
					layers.devices = float64(n)
				}
				f.pure(&layers, class, n)
			}
			all = f.add(all, class, &layers)
		}
	}
	if len(m.classes) > 1 && !slices.Equal(m.options.Replicas, []int{1}) {
		all = f.mixed(all)
	}
	return all
}

// bucket is how many more devices than the least of a floor's it may stand for, as a factor.
const bucket = 1.03

// floorer makes floors.
type floorer struct {
	model
	samples int
	micro   float64 // micro-batches
	prices  []float64
	first   []int // layer of each kind
	steady  bool  // every path has the same bandwidth for all messages

	over [][]int // tensor degrees over machines, by class
}

// kindFloors are the least over some ways of placing a stage, by kind of layer, and what it sends.
type kindFloors struct {
	mixed            bool
	reach            int
	devices, replica float64
	kinds            []layerFloor
	send             [][2]float64 // of each way: samples that cross a link to another machine; within the machine, 0: it cannot
	fill             float64      // samples that cross some link of the stage at least
	within           bool         // the stage may share a machine with the one before
}

func (f *floorer) none() kindFloors {
	k := kindFloors{kinds: make([]layerFloor, len(f.first))}
	for i := range k.kinds {
		x := &k.kinds[i]
		x.forward, x.first, x.memory = math.Inf(1), math.Inf(1), math.Inf(1)
		x.steps, x.busy = slices.Repeat([]float64{math.Inf(1)}, len(f.prices)), slices.Repeat([]float64{math.Inf(1)}, len(f.prices))
	}
	return k
}

// pure lowers floors by a stage of n devices of a class.
func (f *floorer) pure(k *kindFloors, class, n int) {
	c := &f.classes[class]
	if r := f.options.Replicas; len(r) > 0 && !slices.ContainsFunc(f.TensorsOf(class), func(t int) bool { return n%t == 0 && slices.Contains(r, n/t) }) {
		return
	}
	k.within = k.within || n < c.PerMachine
	places := map[int][]placing{} // by tensor degree
	for t := 1; t <= n; t++ {
		if n%t != 0 || t > c.PerMachine && !slices.Contains(f.over[class], t) {
			continue
		}
		for first := 0; first < c.PerMachine && first+n <= c.Count; first++ {
			g := costmodel.Group{Class: class, First: first, Replicas: n / t, Tensor: t, Shares: []int{(f.samples + n/t - 1) / (n / t)}}
			// Experts have places of their own.
			if machines, most := f.Place(g); costmodel.Within(first, n, t, c.PerMachine) && (f.Spread().Experts > 1 || !slices.ContainsFunc(places[t], func(p placing) bool { return p.machines == machines && p.most == most })) {
				places[t] = append(places[t], placing{machines, most, g})
			}
		}
		for _, p := range places[t] { // what is sent goes by the group's degree, whether layers have it or not
			share := float64(p.group.Shares[0])
			send := [2]float64{share * float64(p.most) / float64(t), 0}
			if n < c.PerMachine && p.machines == 1 {
				send[1] = share / float64(f.Spread().Context)
			}
			k.send = append(k.send, send)
		}
	}
	for kind, l := range f.first {
		for _, t := range f.degrees(l, class) {
			for _, p := range places[t] {
				f.pureLayer(&k.kinds[kind], l, p.group)
			}
		}
	}
}

// pureLayer lowers a floor by a layer on a group.
func (f *floorer) pureLayer(x *layerFloor, l int, g costmodel.Group) {
	groups := []costmodel.Group{g}
	if f.Divides(l) && f.Cannot(groups, g, l, g.Tensor) != "" {
		return
	}
	h := f.Hold(l, g.Tensor, g.Replicas, func(bytes float64) float64 { return f.Gather(groups, f.samples, costmodel.Strategy{}, 0, bytes) },
		func(bytes float64) float64 { return f.GatherExperts(g, g.Tensor, bytes) })
	f.lower(x, l, g.Class, g.Tensor, g.Shares[0], &h, 2*f.ToAll(g, l, g.Tensor, g.Shares[0]))
}

// degrees are the tensor degrees that a layer may have on a class.
func (f *floorer) degrees(layer, class int) []int {
	all := f.MeasuredTensors(layer, class)
	if o := f.options.Tensors; len(o) > 0 {
		all = slices.DeleteFunc(all, func(t int) bool { return !slices.Contains(o, t) })
	}
	return all
}

// lower lowers a floor by a layer on replicas of a degree of which one takes a share, or more, of a micro-batch. toAll is the seconds of
// sending it to experts.
func (f *floorer) lower(x *layerFloor, l, class, tensor, share int, h *costmodel.Holding, toAll float64) {
	curve := f.Curve(l, class, tensor)
	run, ok := curve.At(share)
	if !ok {
		return
	}
	// A larger share takes no less time, but may have measured less of the rest.
	for _, r := range curve {
		if r.MicroBatch > share {
			run.Update, run.Fixed, run.Activation = min(run.Update, r.Update), min(run.Fixed, r.Fixed), min(run.Activation, r.Activation)
			run.Selective, run.Freed, run.Sequence = min(run.Selective, r.Selective), max(run.Freed, r.Freed), max(run.Sequence, r.Sequence)
		}
	}
	o, passes := &f.options, f.PassFactor(class)
	forward, backward := passes*run.Forward, passes*run.Backward
	weights, gradients, ring := h.GatherWeights, h.GatherGradients, f.Ring(class, l, tensor, share)
	kept := f.Keeps(&run, l, tensor, share)
	for _, sharding := range o.Shardings {
		// Seconds of exchange in a forward and a backward pass, behind the last backward pass, and after the update.
		ahead, behind, hidden, open := ring, 2*ring, 2*gradients, 0.0
		switch sharding {
		case costmodel.Gradients:
			behind, hidden, open = behind+gradients, 0, weights
		case costmodel.Full:
			ahead, behind, hidden = ahead+weights, behind+weights+gradients, 0
		}
		states, update := h.States(o.States, sharding), h.Update(f.DeviceFactor(class)*run.Update, sharding)
		for _, y := range f.Recomputations() {
			back, behind, active, peak := backward, behind, max(0, kept.Activation), o.Calibration.Working*kept.Working
			sent := 2 * toAll
			switch {
			case y.Checkpoint:
				back, behind, active, peak, sent = back+forward, behind+ring, kept.Input, peak+active, 3*toAll
			case y.Selective: // freed of one share, and kept of another
				back, behind, active = back+passes*run.Selective, behind+ring, max(0, active-kept.Freed)
			}
			memory := states + run.Fixed + active
			if memory+peak+f.Reserve(class) > f.Limit(class) {
				continue
			}
			passed, once := o.Overlap.Together(forward, ahead)+toAll, update+open+f.Behind(sharding, back, hidden)
			step := passed - toAll + o.Overlap.Together(back, behind) + sent
			x.forward, x.first, x.memory = min(x.forward, passed), min(x.first, step+once), min(x.memory, memory)
			for i, price := range f.prices {
				x.steps[i] = min(x.steps[i], step+price*memory/f.micro)
				x.busy[i] = min(x.busy[i], f.micro*step+once+price*memory)
			}
		}
	}
}

// mixed adds floors of groups in stages of several classes. A group that takes s of the b samples of a micro-batch by replicas of t
// devices, of which the busiest takes k samples, has at least s t / k devices: the share s / b of b t / k. There are two replicas or
// more.
func (f *floorer) mixed(all []floor) []floor {
	for class, c := range f.classes {
		for t := 1; t <= c.PerMachine; t++ {
			most := 0
			for _, l := range f.first {
				if slices.Contains(f.degrees(l, class), t) {
					curve := f.Curve(l, class, t)
					most = max(most, curve[len(curve)-1].MicroBatch)
				}
			}
			for k := 1; k <= min(most, f.samples-1); k++ {
				for i, s := range f.reaches(f.samples) {
					if s.most[class] < t {
						continue
					}
					devices := 0
					for _, n := range s.most {
						devices += n
					}
					layers := f.none()
					layers.mixed, layers.reach, layers.devices, layers.replica = true, i, float64(f.samples*t)/float64(k), float64(t)
					layers.send, layers.fill = [][2]float64{{float64(k), 0}}, math.Ceil(float64(f.samples)/(s.limit-1))
					for kind, l := range f.first {
						if slices.Contains(f.degrees(l, class), t) && !f.Divides(l) {
							h := f.Hold(l, t, devices, func(bytes float64) float64 { return f.across(class, s.machines, bytes*float64(t)) }, nil)
							f.lower(&layers.kinds[kind], l, class, t, k, &h, 0)
						}
					}
					all = f.add(all, class, &layers)
				}
			}
		}
	}
	return all
}

// across is the least time of a gather of whole layers in a stage of a class and others on so many machines, two at least, over the
// slowest path of the two classes for the whole layer.
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
	if !f.steady { // the slowest path for the whole may be a quick one for its parts
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

// add sums the floors of layers up, unless some cannot run.
func (f *floorer) add(all []floor, class int, k *kindFloors) []floor {
	x := floor{class: class, mixed: k.mixed, reach: k.reach, devices: k.devices, replica: k.replica, capacity: f.Limit(class) - f.Reserve(class)}
	n := len(f.kindOf)
	x.forward, x.first, x.memory, x.send, x.receive, x.unable = make([]float64, n+1), make([]float64, n+1), make([]float64, n+1), make([]float64, n+1), make([]float64, n+1), make([]int, n+1)
	for range f.prices {
		x.steps, x.busy = append(x.steps, make([]float64, n+1)), append(x.busy, make([]float64, n+1))
	}
	some := false
	for l, kind := range f.kindOf {
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

// sendFloor is the least time of sending so many bytes of a sample.
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

// receiveFloor is the least time of receiving so many bytes of a sample, and sending as many back. The samples come over no more links
// than there are machines, or from within the machine, in whole samples.
func (f *floorer) receiveFloor(class int, within bool, bytes float64) float64 {
	machines, least := 0, math.Inf(1)
	for _, c := range f.classes {
		machines += c.Count / c.PerMachine
	}
	samples := max(1, float64(f.samples)/float64(machines))
	for other := range f.classes {
		least = min(least, f.Between(other, class).Floor(bytes*samples))
	}
	if within {
		samples = max(1, float64(f.samples)/float64(f.classes[class].PerMachine-1))
		least = min(least, f.Inside(class).Floor(bytes*samples/float64(f.Spread().Context)))
	}
	return 2 * f.options.Calibration.Links * least
}
