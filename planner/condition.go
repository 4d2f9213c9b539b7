package planner

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// condition is the Costs of a job under one preset condition: how many samples a micro-batch has and how many replicas
// share it at stage boundaries.
type condition struct {
	*Job
	batch    int // samples of an iteration
	replicas int
	samples  int // of a micro-batch, over all replicas
	shapes   []Shape
	forms    []form
	work     [][]float64 // by class and layer
	cells    map[cellKey]*cell
	labels   []label  // of stages of small models
	chosen   []packed // of stages of large ones
	packer   packer
	guessed  bool // some stage was packed: there may be better ones
	relaxed  bool // stages are bounds, not plans
}

// Relaxed is the condition with bounds for stages.
func (c *condition) Relaxed() Costs {
	r := *c
	r.relaxed, r.cells, r.packer, r.guessed = true, map[cellKey]*cell{}, packer{}, false
	return &r
}

// form is what a shape means: one group of devices, or two of different classes.
type form struct {
	groups []team
	ways   []way
	costs  [][]layerCost // by kind of layer and way
}

// team is the part of a stage in one class.
type team struct {
	class, replicas, tensor int
	shares                  []int // samples of each replica, the largest first
}

func (t team) devices() int { return t.replicas * t.tensor }

// conditions are all that the options allow.
func (j *Job) conditions() []*condition {
	devices := 0
	for _, c := range j.Topology.Classes {
		devices += c.Count
	}
	var all []*condition
	for _, batch := range j.Options.GlobalBatches {
		replicas := j.Options.Replicas
		if replicas == nil {
			replicas = divisors(batch)
		}
		for _, d := range replicas {
			if d > devices || batch%d != 0 {
				continue
			}
			micro := j.Options.MicroBatches
			if micro == nil {
				micro = divisors(batch / d)
			}
			for _, b := range micro {
				if batch%(d*b) != 0 {
					continue
				}
				if c := j.condition(batch, d, d*b); len(c.shapes) > 0 {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func divisors(n int) []int {
	var small, large []int
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			small = append(small, d)
			if d*d != n {
				large = append([]int{n / d}, large...)
			}
		}
	}
	return append(small, large...)
}

func (j *Job) condition(batch, replicas, samples int) *condition {
	c := &condition{Job: j, batch: batch, replicas: replicas, samples: samples, cells: map[cellKey]*cell{}}
	for class := range j.Topology.Classes {
		for _, t := range j.tensors[class] {
			c.add([]team{{class: class, replicas: replicas, tensor: t}})
		}
	}
	// Two classes share a stage in quarters of its replicas.
	part := max(1, replicas/4)
	for a := range j.Topology.Classes {
		for b := range a {
			for first := part; first < replicas; first += part {
				for _, ta := range j.tensors[a] {
					for _, tb := range j.tensors[b] {
						c.add([]team{{class: b, replicas: first, tensor: tb}, {class: a, replicas: replicas - first, tensor: ta}})
					}
				}
			}
		}
	}
	c.boundWork()
	return c
}

// add makes a shape of teams, if the devices are there and a replica's share was profiled.
func (c *condition) add(teams []team) {
	shape := make(Shape, len(c.Topology.Classes))
	for _, t := range teams {
		n, per := t.devices(), c.Topology.Classes[t.class].PerMachine
		if n > c.Topology.Classes[t.class].Count || n > per && n%per != 0 {
			return
		}
		shape[t.class] = n
	}
	if !c.share(teams) {
		return
	}
	f := form{groups: teams}
	f.ways = c.ways(teams)
	if !c.price(&f) {
		return
	}
	c.shapes = append(c.shapes, shape)
	c.forms = append(c.forms, f)
}

// share gives the replicas of the teams their samples of a micro-batch: equal ones within a class, by the allocation
// of micro-batches to nodes between classes, with the time of the whole model as what a node takes.
func (c *condition) share(teams []team) bool {
	if len(teams) == 1 {
		teams[0].shares = even(c.samples, teams[0].replicas)
		return true
	}
	nodes := cluster.Cluster{GlobalBatch: c.samples, Workload: c.Profile.Model}
	var perf []cluster.Performance
	for _, t := range teams {
		low, high := c.samples/c.replicas, c.samples/c.replicas
		for n := 2 * high; n <= c.samples; n *= 2 {
			if _, ok := c.whole(t, n); !ok {
				break
			}
			high = n
		}
		if low == high {
			low = max(1, low/2)
		}
		a, ok1 := c.whole(t, low)
		b, ok2 := c.whole(t, high)
		if !ok1 || !ok2 {
			return false
		}
		p := cluster.Performance{PerSample: b / float64(high)}
		if high > low {
			p.PerSample = max((b-a)/float64(high-low), 1e-3*b/float64(high))
			p.Overhead = max(0, a-p.PerSample*float64(low))
		}
		if !(p.PerSample > 0) {
			return false
		}
		most := c.most(t)
		for range t.replicas {
			nodes.Nodes = append(nodes.Nodes, cluster.Node{Name: c.devices[t.class], Device: c.devices[t.class], Limit: most})
			perf = append(perf, p)
		}
	}
	sizes := make([]int, len(perf))
	if _, err := cluster.Allocate(&nodes, nil, perf, sizes); err != nil {
		return false
	}
	first := 0
	for i := range teams {
		teams[i].shares = sizes[first:][:teams[i].replicas:teams[i].replicas]
		first += teams[i].replicas
	}
	return true
}

// even divides samples over replicas, the larger parts first.
func even(samples, replicas int) []int {
	all := make([]int, replicas)
	for i := range all {
		all[i] = samples / replicas
		if i < samples%replicas {
			all[i]++
		}
	}
	return all
}

// whole is the seconds of all layers on one replica of a team.
func (c *condition) whole(t team, samples int) (float64, bool) {
	s := 0.0
	for i := range c.Profile.Layers {
		r, ok := c.Profile.Layers[i].times(c.devices[t.class], t.tensor).at(samples)
		if !ok {
			return 0, false
		}
		s += r.Forward + r.Backward
	}
	return s * c.Topology.Classes[t.class].Slowdown, true
}

// most is the largest micro-batch that every layer was profiled with.
func (c *condition) most(t team) int {
	most := math.MaxInt32
	for i := range c.Profile.Layers {
		runs := c.Profile.Layers[i].times(c.devices[t.class], t.tensor)
		most = min(most, runs[len(runs)-1].MicroBatch)
	}
	return most
}

// boundWork finds the least device-seconds of each layer on each class over all forms.
func (c *condition) boundWork() {
	n := len(c.Profile.Layers)
	for class := range c.Topology.Classes {
		all := make([]float64, n)
		for l := range all {
			all[l] = math.Inf(1)
		}
		for _, f := range c.forms {
			for g, t := range f.groups {
				if t.class != class {
					continue
				}
				for l := range all {
					for w := range f.ways {
						cost := &f.costs[c.alike[l]][w]
						// Device-seconds that the whole micro-batch would take at the rate of this team's share.
						all[l] = min(all[l], cost.step[g]*float64(t.devices())*float64(c.samples)/float64(sum(t.shares)))
					}
				}
			}
		}
		c.work = append(c.work, all)
	}
}

// Layers implements Costs, as do all methods below.
func (c *condition) Layers() int { return len(c.Profile.Layers) }

// Pool implements Costs.
func (c *condition) Pool() []int {
	var pool []int
	for _, class := range c.Topology.Classes {
		pool = append(pool, class.Count)
	}
	return pool
}

// Shapes implements Costs.
func (c *condition) Shapes() []Shape { return c.shapes }

// Degrees implements Costs.
func (c *condition) Degrees() (least, most int) { return c.Options.LeastStages, c.Options.MostStages }

// Work implements Costs.
func (c *condition) Work(class, layer int) float64 { return c.work[class][layer] }

// microBatches of an iteration.
func (c *condition) microBatches() int { return c.batch / c.samples }

// Total is the seconds of an iteration per sample.
func (c *condition) Total(f Front) float64 {
	return (f.Sum + float64(c.microBatches()-1)*f.Max + f.Tail) / float64(c.batch)
}

// Exact implements Costs.
func (c *condition) Exact() bool { return !c.guessed }

// Grain implements Grainer.
func (c *condition) Grain() []int {
	var grain []int
	for _, k := range c.Topology.Classes {
		grain = append(grain, k.PerMachine)
	}
	return grain
}

// Fits keeps a stage of less than a machine within one, and others to whole machines.
func (c *condition) Fits(shape int, used []int) bool {
	for class, n := range c.shapes[shape] {
		if n == 0 {
			continue
		}
		k := &c.Topology.Classes[class]
		first := k.Count - used[class] - n
		if n >= k.PerMachine && first%k.PerMachine != 0 || first/k.PerMachine != (first+min(n, k.PerMachine)-1)/k.PerMachine {
			return false
		}
	}
	return true
}
