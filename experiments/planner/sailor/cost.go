package main

import (
	"math"
	"slices"

	"evenkeel/planner/search"
)

// condition is Sailor's own cost function (planner.cpp, planner_utils.cpp, network_utils.cpp of github.com/eth-easl/sailor)
// under a micro-batch and a number of replicas: every stage has that many, each of one type and a tensor degree.
type condition struct {
	*input
	micro, replicas int
	shapes          []search.Shape
	forms           []form
	work            [][]float64
	stages          map[[4]int][]search.Point
	seconds         [2]map[int][]float64 // by type and tensor degree: of layers 0..l-1
}

// form is the replicas and the tensor degree of each type in a stage, 0: none.
type form struct{ replicas, tensor [2]int }

// bytesOfStates of a parameter: optimizer, copy, gradients, communication and the rest, as check_stage_fits has them.
const bytesOfStates = 8 + 4 + 4 + 4 + 4

// mostStages is what the search looks at.
const mostStages = 6

// parts of the replicas of a stage that one type may be.
const parts = 8

// bucket is the bytes that an all-reduce takes at a time.
const bucket = 500_000_000

func (in *input) condition(micro, replicas int) *condition {
	c := &condition{input: in, micro: micro, replicas: replicas, stages: map[[4]int][]search.Point{}}
	for g := range in.types {
		c.seconds[g] = map[int][]float64{}
		for _, t := range tensors {
			if layers := in.types[g].times[micro][t]; layers != nil {
				sums := make([]float64, len(layers)+1)
				for l, s := range layers {
					sums[l+1] = sums[l] + s
				}
				c.seconds[g][t] = sums
			}
		}
	}
	part := max(1, replicas/parts)
	for first := 0; first <= replicas; first++ {
		if first%part != 0 && first != replicas {
			continue
		}
		for _, ta := range tensors {
			for _, tb := range tensors {
				f := form{[2]int{first, replicas - first}, [2]int{ta, tb}}
				ok := true
				for g := range f.replicas {
					if f.replicas[g] == 0 {
						ok = ok && f.tensor[g] == 1 // once
						f.tensor[g] = 0
					} else {
						ok = ok && c.seconds[g][f.tensor[g]] != nil && f.replicas[g]*f.tensor[g] <= in.types[g].count
					}
				}
				if ok {
					c.forms = append(c.forms, f)
					c.shapes = append(c.shapes, search.Shape{f.replicas[0] * f.tensor[0], f.replicas[1] * f.tensor[1]})
				}
			}
		}
	}
	for g := range in.types {
		all := make([]float64, in.layers)
		for l := range all {
			all[l] = math.Inf(1)
			for t, sums := range c.seconds[g] {
				all[l] = min(all[l], float64(replicas*t)*(sums[l+1]-sums[l]))
			}
		}
		c.work = append(c.work, all)
	}
	return c
}

func (c *condition) Layers() int             { return c.layers }
func (c *condition) Pool() []int             { return []int{c.types[0].count, c.types[1].count} }
func (c *condition) Shapes() []search.Shape  { return c.shapes }
func (c *condition) Degrees() (int, int)     { return 1, mostStages }
func (c *condition) Fits(int, []int) bool    { return true }
func (c *condition) Exact() bool             { return true }
func (c *condition) Grain() []int            { return []int{1, 1} }
func (c *condition) Least([]float64) float64 { return 0 }
func (c *condition) Work(g, l int) float64   { return c.work[g][l] }

// microBatches of an iteration.
func (c *condition) microBatches() int {
	return (c.global + c.micro*c.replicas - 1) / (c.micro * c.replicas)
}

func (c *condition) Total(f search.Front) float64 {
	return f.Sum + float64(c.microBatches()-1)*f.Max + f.PerIteration
}

// Stage is simulate_time_single_stage and check_stage_fits.
func (c *condition) Stage(from, to, shape, behind int) []search.Point {
	key := [4]int{from, to, shape, behind}
	if p, ok := c.stages[key]; ok {
		return p
	}
	var points []search.Point
	if c.fits(from, to, shape, behind) {
		f := c.forms[shape]
		step := 0.0
		for g, t := range f.tensor {
			if t > 0 {
				step = max(step, c.seconds[g][t][to]-c.seconds[g][t][from])
			}
		}
		points = []search.Point{{Step: step, PerIteration: c.reduce(from, to, f)}}
	}
	c.stages[key] = points
	return points
}

func (c *condition) fits(from, to, shape, behind int) bool {
	for g, t := range c.forms[shape].tensor {
		if t == 0 {
			continue
		}
		base := 3e9
		if t == 1 {
			base = 2e9
		}
		s := c.sizes[t]
		states := (s.parameters[to] - s.parameters[from]) * bytesOfStates
		active := (s.activations[to] - s.activations[from]) * float64(c.micro) * 4
		if states+active*float64(behind)+base > c.types[g].memory {
			return false
		}
	}
	return true
}

// reduce is find_ar_time: a ring over all replicas, of the unsplit stage, in buckets, over the link of the type whose
// bandwidth is least, at the smallest tensor degree.
func (c *condition) reduce(from, to int, f form) float64 {
	if c.replicas == 1 {
		return 0
	}
	least, slowest, narrow := math.Inf(1), 0, 4
	for g, t := range f.tensor {
		if t == 0 {
			continue
		}
		narrow = min(narrow, t)
		if bw := c.links[link{g, t, g, t}].bandwidth; bw < least {
			least, slowest = bw, g
		}
	}
	k := c.links[link{slowest, narrow, slowest, narrow}].coefficients
	s := 0.0
	for left := (c.sizes[1].parameters[to] - c.sizes[1].parameters[from]) * 4; left > 0; left -= bucket {
		s += 2 * float64(c.replicas-1) * send(math.Floor(min(left, bucket)/float64(c.replicas)), k)
	}
	return s
}

// send is get_time_on_config: bandwidth in GB/s as a polynomial in log2 of the megabytes.
func send(bytes float64, k []float64) float64 {
	x, bandwidth := math.Log2(bytes)-math.Log2(1e6), 0.0
	for _, a := range k {
		bandwidth = bandwidth*x + a
	}
	return bytes / 1e9 / bandwidth
}

// Kind is the tensor degrees of a shape.
func (c *condition) Kind(shape int) int {
	t := c.forms[shape].tensor
	return 8*t[0] + t[1]
}

// Boundary bounds passing from above: find_p2p_time_cost pairs the replicas by number, this takes the slowest pair of
// types that there may be. Either stage is busy with one way, the sum has both (merge_stages_get_time).
func (c *condition) Boundary(layer, shape, next int, _ []int) (s search.Sending) {
	to := [2]int{next / 8, next % 8}
	for g, t := range c.forms[shape].tensor {
		for h, u := range to {
			if t > 0 && u > 0 {
				s.Busy = max(s.Busy, c.pass(layer, link{g, t, h, u}))
			}
		}
	}
	s.Passing = 2 * s.Busy
	return s
}

func (c *condition) pass(layer int, l link) float64 {
	return send(math.Floor(c.outputs[layer-1]*4*float64(c.micro)), c.links[l].coefficients)
}

// pairs are the types of replicas with the same number in two stages.
func pairs(a, b form) [][2]int {
	var all [][2]int
	for k := range a.replicas[0] + a.replicas[1] {
		p := [2]int{}
		if k >= a.replicas[0] {
			p[0] = 1
		}
		if k >= b.replicas[0] {
			p[1] = 1
		}
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// rescore prices a found plan anew, stage by stage as Sailor's merge does, from the last to the first.
func (c *condition) rescore(plan []search.Choice) float64 {
	var straggler, first, compute, passing, sync float64
	for i := len(plan) - 1; i >= 0; i-- {
		s := plan[i]
		if !c.fits(s.From, s.To, s.Shape, len(plan)-i) {
			return math.Inf(1)
		}
		f := c.forms[s.Shape]
		own := 0.0
		for g, t := range f.tensor {
			if t == 0 {
				continue
			}
			layers := 0.0
			for l := s.From; l < s.To; l++ {
				layers += c.types[g].times[c.micro][t][l]
			}
			own = max(own, layers)
		}
		way := 0.0
		if i+1 < len(plan) {
			next := c.forms[plan[i+1].Shape]
			for _, pair := range pairs(f, next) {
				way = max(way, c.pass(s.To, link{pair[0], f.tensor[pair[0]], pair[1], next.tensor[pair[1]]}))
			}
			straggler = max(own+way, first+way, straggler)
		} else {
			straggler = own
		}
		first = own + way
		compute, passing, sync = compute+own, passing+2*way, max(sync, c.reduce(s.From, s.To, f))
	}
	return float64(c.microBatches()-1)*straggler + passing + compute + sync
}
