package peers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/search"
)

// piperGap is by what share a plan must be cheaper to be looked for.
const piperGap = 1e-6

// PlanPiper searches for the plan with the least Score. Piper's memory rule counts the replicas of all later stages,
// which search.Run does not know of; and its cost is a maximum alone. So the search is its own: bisect the cost; for
// each, a dynamic programme finds the fewest devices that stay below it, by first node and replicas of what remains.
// Every order of the nodes that leads to other cuts is searched. It is exact to piperGap but for the choice of
// recomputed layers, which follows Piper's own rule (least seconds per byte first). The error wraps
// search.ErrInfeasible where nothing fits.
func (p *Piper) PlanPiper(ctx context.Context) ([]PiperStage, float64, error) {
	best, cost := []PiperStage(nil), math.Inf(1)
	for _, order := range p.orders() {
		s := newPiperSearch(p, order)
		low := s.work[0] / float64(p.Devices)
		try := max(2*low, 1e-12)
		if best != nil {
			try = cost * (1 - piperGap)
		}
		for {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			plan := s.below(try)
			if plan != nil {
				score, err := p.Score(plan)
				if err != nil {
					return nil, 0, err
				}
				if score < cost {
					best, cost = plan, score
				}
			} else {
				low = try
			}
			switch {
			case low >= cost*(1-piperGap):
			case best == nil && try > 1e9:
			case best == nil:
				try *= 2
				continue
			default:
				try = max((low+cost)/2, cost*(1-piperGap)-(cost-low)*0.9)
				try = min(try, cost*(1-piperGap))
				continue
			}
			break
		}
	}
	if best == nil {
		return nil, 0, fmt.Errorf("%w: %d devices of %.3g bytes are too few", search.ErrInfeasible, p.Devices, p.Memory)
	}
	return best, cost, nil
}

// orders are the orders of the nodes in which every plan's stages are intervals of one: where several nodes have no
// input, each place of them before the first node that needs them.
func (p *Piper) orders() [][]int {
	base := make([]int, len(p.nodes))
	for i := range base {
		base[i] = i
	}
	head := 0 // nodes up to the first transformer layer may change places
	for head < len(base) && p.nodes[head].name != piperLayer {
		head++
	}
	if head > 6 {
		head = 0
	}
	var all [][]int
	var grow func(prefix []int)
	grow = func(prefix []int) {
		if len(prefix) == head {
			all = append(all, append(slices.Clone(prefix), base[head:]...))
			return
		}
		for i := range head {
			ready := !slices.Contains(prefix, i)
			for from := range p.nodes[i].in {
				ready = ready && slices.ContainsFunc(prefix, func(j int) bool { return p.nodes[j].id == from })
			}
			if ready {
				grow(append(slices.Clone(prefix), i))
			}
		}
	}
	grow(nil)
	return all
}

// piperSearch is the search along one order of the nodes.
type piperSearch struct {
	p        *Piper
	nodes    []*piperNode
	degrees  []int       // tensor degrees, rising
	replicas []int       // data-parallel degrees, rising
	work     []float64   // device-seconds that nodes i.. take at least
	parts    []piperPart // by stage, see at
	times    [][]float64 // of the nodes of a stage, by its samples in flight; 0: not known yet
	fastest  [][]float64 // by place of the tensor degree: seconds of the nodes before i
}

// piperPart is what a stage costs whatever is chosen for its layers.
type piperPart struct {
	edges, size float64
	possible    bool // every node runs at the tensor degree
}

// at is the place of a stage: nodes i..j-1 at the degree with that place.
func (s *piperSearch) at(i, j, degree int) int {
	return (i*(len(s.nodes)+1)+j)*len(s.degrees) + degree
}

func newPiperSearch(p *Piper, order []int) *piperSearch {
	s := &piperSearch{p: p, work: make([]float64, len(order)+1)}
	seen := map[int]bool{}
	for _, i := range order {
		s.nodes = append(s.nodes, &p.nodes[i])
		for t := range p.nodes[i].ways {
			if !seen[t] && t <= p.Devices {
				seen[t] = true
				s.degrees = append(s.degrees, t)
			}
		}
	}
	slices.Sort(s.degrees)
	for d := 1; d <= min(p.Devices, p.Batch); d++ {
		if p.Batch%d == 0 {
			s.replicas = append(s.replicas, d)
		}
	}
	for i := len(order) - 1; i >= 0; i-- {
		least := math.Inf(1)
		for t, ways := range s.nodes[i].ways {
			for _, w := range ways {
				least = min(least, float64(t)*w.Time)
			}
		}
		s.work[i] = s.work[i+1] + least
	}
	at := map[int]int{}
	for i, n := range s.nodes {
		at[n.id] = i
	}
	s.parts = make([]piperPart, s.at(len(order), 0, 0))
	s.times = make([][]float64, len(s.parts))
	for degree, t := range s.degrees {
		sum := make([]float64, len(order)+1)
		for i, n := range s.nodes {
			least := math.Inf(1)
			for _, w := range n.ways[t] {
				least = min(least, w.Time)
			}
			sum[i+1] = sum[i] + least
			s.measure(at, i, degree)
		}
		s.fastest = append(s.fastest, sum)
	}
	return s
}

// measure notes the parts of all stages that begin with node i.
func (s *piperSearch) measure(at map[int]int, i, degree int) {
	t, part := s.degrees[degree], piperPart{possible: true}
	for j := i; j < len(s.nodes); j++ {
		n := s.nodes[j]
		if len(n.ways[t]) == 0 {
			return
		}
		w := n.ways[t][0]
		part.size += w.Size
		for from, bytes := range n.in {
			if k := at[from]; k < i {
				part.edges += 2 * (bytes + w.before[from])
			} else { // no longer leaves the stage
				part.edges -= 2 * (bytes + s.nodes[k].ways[t][0].after[n.id])
			}
		}
		for to, bytes := range n.out {
			part.edges += 2 * (bytes + w.after[to])
		}
		s.parts[s.at(i, j+1, degree)] = part
	}
}

// choose picks a way for every node of a stage: the fastest, then, while memory is short, others in the order of seconds
// per byte. It returns the seconds of a sample, +Inf where they do not fit.
func (s *piperSearch) choose(i, j, t, inFlight int, ways []int) float64 {
	type swap struct {
		price, seconds, bytes float64
		node, way, first      int
	}
	var swaps []swap
	seconds, memory, y := 0.0, 0.0, float64(inFlight)
	for k := i; k < j; k++ {
		options := s.nodes[k].ways[t]
		first := 0
		for l := range options {
			if options[l].Time < options[first].Time {
				first = l
			}
		}
		if ways != nil {
			ways[k-i] = first
		}
		seconds += options[first].Time
		used := options[first].A*y + options[first].B
		memory += used
		for l := range options {
			if less := used - options[l].A*y - options[l].B; less > 0 {
				more := options[l].Time - options[first].Time
				swaps = append(swaps, swap{more / less, more, less, k, l, first})
			}
		}
	}
	if memory <= s.p.Memory {
		return seconds
	}
	slices.SortStableFunc(swaps, func(a, b swap) int { return cmp.Compare(a.price, b.price) })
	for k, w := range swaps {
		memory -= w.bytes
		seconds += w.seconds
		if ways != nil {
			ways[w.node-i] = w.way
		}
		if memory > s.p.Memory {
			continue
		}
		// The last choice may have freed more than was missing: take back what is not needed, dearest first.
		for back := k - 1; back >= 0; back-- {
			if b := swaps[back]; memory+b.bytes <= s.p.Memory {
				memory += b.bytes
				seconds -= b.seconds
				if ways != nil {
					ways[b.node-i] = b.first
				}
			}
		}
		return seconds
	}
	return math.Inf(1)
}

// longest is how many samples, up to bound, may be in flight for the stage to stay at or below the cost; 0: none.
func (s *piperSearch) longest(i, j, degree, d, bound int, cost float64) int {
	place := s.at(i, j, degree)
	part, n := s.parts[place], float64(d)
	fixed := (part.edges/n + 4*(n-1)*part.size/n/float64(s.p.Batch)) / s.p.Bandwidth
	if !part.possible || fixed+(s.fastest[degree][j]-s.fastest[degree][i])/n > cost*(1+1e-12) {
		return 0
	}
	if s.times[place] == nil {
		s.times[place] = make([]float64, min(s.p.Batch, s.p.Devices)+2)
	}
	fits := func(y int) bool {
		if s.times[place][y] == 0 {
			s.times[place][y] = s.choose(i, j, s.degrees[degree], y, nil)
		}
		return fixed+s.times[place][y]/n <= cost
	}
	if !fits(1) {
		return 0
	}
	low, high := 1, 2
	for high <= bound && fits(high) {
		low, high = high, 2*high
	}
	for high = min(high, bound+1); high-low > 1; {
		if mid := (low + high) / 2; fits(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// step is a stage of a plan and the fewest devices from its first node on.
type step struct {
	devices     int32
	to, d, t, y int32
}

// below finds a plan that costs no more, nil where there is none.
func (s *piperSearch) below(cost float64) []PiperStage {
	n, most := len(s.nodes), min(s.p.Batch, s.p.Devices)
	waste := float64(s.p.Devices) - s.work[0]/cost // devices that need not be at work
	if waste < -1e-9 {
		return nil
	}
	table := make([][]step, n+1)
	for i := n; i >= 0; i-- {
		table[i] = make([]step, most+1)
		for r := range table[i] {
			table[i][r].devices = math.MaxInt32
		}
		if i == n {
			table[n][0].devices = 0
			continue
		}
		room := int32(float64(s.p.Devices) - (s.work[0]-s.work[i])/cost + 1e-9)
		for j := i + 1; j <= n; j++ {
			for degree, t := range s.degrees {
				for _, d := range s.replicas {
					if float64(t*d)-(s.work[i]-s.work[j])/cost > waste+1e-9 {
						break
					}
					y := s.longest(i, j, degree, d, (most+d-1)/d, cost)
					for r := d; r <= min(most, d*y); r++ {
						rest := table[j][r-d].devices
						if rest < room && rest+int32(t*d) <= room && rest+int32(t*d) < table[i][r].devices {
							table[i][r] = step{rest + int32(t*d), int32(j), int32(d), int32(t), int32((r + d - 1) / d)}
						}
					}
				}
			}
		}
	}
	r := 0
	for k := range table[0] {
		if table[0][k].devices < table[0][r].devices {
			r = k
		}
	}
	if table[0][r].devices > int32(s.p.Devices) {
		return nil
	}
	var plan []PiperStage
	for i := 0; i < n; {
		c := table[i][r]
		stage := PiperStage{Data: int(c.d), Tensor: int(c.t), Ways: make([]int, int(c.to)-i)}
		s.choose(i, int(c.to), int(c.t), int(c.y), stage.Ways)
		for k := i; k < int(c.to); k++ {
			stage.Nodes = append(stage.Nodes, s.nodes[k].id)
		}
		plan = append(plan, stage)
		i, r = int(c.to), r-int(c.d)
	}
	return plan
}
