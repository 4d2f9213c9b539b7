package peers

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/planner/search"
)

// sailorCosts is one preset condition, a micro-batch and a number of replicas, for search.Run. They
// differ from the simulator in that the first and the last stage send to stages like themselves; plans are scored by
// Sailor.Score in the end. The replicas of a stage are alike.
type sailorCosts struct {
	s                    *Sailor
	microBatch, replicas int
	count                float64         // micro-batches
	stages               []SailorReplica // by shape: what each replica is
	shapes               []search.Shape
	sums                 map[SailorReplica][]float64 // seconds of the layers before i
	weights              []float64                   // bytes of the layers before i
	sends                map[[4]int][]float64        // seconds of a message after each layer, by link
	known                []priced
	work                 [][]float64 // by class and layer
}

func newSailorCosts(s *Sailor, microBatch, replicas int) *sailorCosts {
	c := &sailorCosts{s: s, microBatch: microBatch, replicas: replicas, sums: map[SailorReplica][]float64{}, sends: map[[4]int][]float64{}}
	c.count = math.Ceil(float64(s.Batch) / float64(microBatch*replicas))
	layers := len(s.output)
	c.weights = make([]float64, layers+1)
	for i, w := range s.weights {
		c.weights[i+1] = c.weights[i] + w
	}
	for link, polynomial := range s.links {
		for _, bytes := range s.output {
			c.sends[link] = append(c.sends[link], send(bytes*float64(microBatch), polynomial))
		}
	}
	for class, k := range s.classes {
		work := slices.Repeat([]float64{math.Inf(1)}, layers)
		for _, t := range slices.Sorted(maps.Keys(k.times[microBatch])) {
			sum := make([]float64, layers+1)
			for i, v := range k.times[microBatch][t] {
				sum[i+1] = sum[i] + v[0] + v[1]
				work[i] = min(work[i], float64(replicas*t)*(v[0]+v[1]))
			}
			if replicas*t <= s.Pool[class] {
				r, devices := SailorReplica{class, t}, make(search.Shape, len(s.Pool))
				devices[class] = replicas * t
				c.sums[r] = sum
				c.stages, c.shapes = append(c.stages, r), append(c.shapes, devices)
			}
		}
		c.work = append(c.work, work)
	}
	// Bounds may be lower. The first layer's time is mostly overhead, alike on all classes: with the ratio of the others
	// it does not blur the speeds.
	for class := 1; class < len(c.work); class++ {
		ratio := 0.0
		for i := 1; i < layers; i++ {
			ratio = max(ratio, c.work[0][i]/c.work[class][i])
		}
		c.work[0][0] = min(c.work[0][0], ratio*c.work[class][0])
	}
	return c
}

func (c *sailorCosts) Layers() int                { return len(c.s.output) }
func (c *sailorCosts) Pool() []int                { return c.s.Pool }
func (c *sailorCosts) Shapes() []search.Shape     { return c.shapes }
func (c *sailorCosts) Degrees() (least, most int) { return 1, len(c.s.output) }
func (c *sailorCosts) Kind(shape int) int         { return shape }
func (c *sailorCosts) Exact() bool                { return true }
func (c *sailorCosts) Least([]float64) float64    { return 0 }
func (c *sailorCosts) Work(class, l int) float64  { return c.work[class][l] }

func (c *sailorCosts) Total(f search.Front) float64 {
	return f.Sum + (c.count-1)*f.Max + f.PerIteration
}

func (c *sailorCosts) Fits(shape int, used []int) bool {
	for class, n := range c.shapes[shape] {
		if used[class]+n > c.s.Pool[class] {
			return false
		}
	}
	return true
}

func (c *sailorCosts) Stage(from, to, shape, behind int) []search.Point {
	n := len(c.s.output)
	if c.known == nil {
		c.known = make([]priced, len(c.shapes)*(n+1)*(n+1)*n)
	}
	known := &c.known[((shape*(n+1)+from)*(n+1)+to)*n+behind-1]
	if !known.done {
		known.done = true
		if p, ok := c.price(from, to, shape, behind); ok {
			known.points = []search.Point{p}
		}
	}
	return known.points
}

// priced is what Stage said before.
type priced struct {
	done   bool
	points []search.Point
}

func (c *sailorCosts) price(from, to, shape, behind int) (search.Point, bool) {
	r := c.stages[shape]
	if !c.s.fits(from, to, c.microBatch, behind, r) {
		return search.Point{}, false
	}
	step := c.sums[r][to] - c.sums[r][from]
	// The simulator counts twice what the last stage sends, and in long pipelines what the first one does.
	if own := c.sends[[4]int{r.Class, r.Tensor, r.Class, r.Tensor}]; behind == 1 && from > 0 {
		step += own[from]
	} else if from == 0 && behind > 3 {
		step += own[to-1]
	}
	update := c.s.classes[r.Class].times[c.microBatch][r.Tensor][from][2]
	sync := reduce((c.weights[to]-c.weights[from])/float64(r.Tensor), c.replicas, c.s.links[[4]int{r.Class, 1, r.Class, 1}])
	return search.Point{Step: step, PerIteration: update + sync}, true
}

func (c *sailorCosts) Boundary(layer, shape, next int, _ []int) (busy, sum float64) {
	a, b := c.stages[shape], c.stages[next]
	activation, gradient := c.sends[[4]int{a.Class, a.Tensor, b.Class, b.Tensor}][layer-1], c.sends[[4]int{b.Class, b.Tensor, a.Class, a.Tensor}][layer]
	return max(activation, gradient), activation + gradient
}

// PlanSailor searches for the plan with the least Score: search.Run over all micro-batches and numbers of replicas,
// its best plans scored anew, and cuts moved while that helps.
func (s *Sailor) PlanSailor(ctx context.Context) (SailorPlan, float64, error) {
	total := 0
	for _, n := range s.Pool {
		total += n
	}
	var conditions []search.Costs
	for _, b := range slices.Sorted(maps.Keys(s.classes[0].times)) {
		last := 0
		for replicas := 1; replicas <= total && replicas*b <= s.Batch; replicas++ {
			// Of the numbers of replicas that leave equally many micro-batches, the smallest.
			if count := (s.Batch + b*replicas - 1) / (b * replicas); count != last {
				last = count
				conditions = append(conditions, newSailorCosts(s, b, replicas))
			}
		}
	}
	found, err := search.Run(ctx, conditions, search.Options{})
	if err != nil {
		return SailorPlan{}, 0, err
	}
	best, cost := SailorPlan{}, math.Inf(1)
	for _, k := range found.Best {
		c := conditions[k.Condition].(*sailorCosts)
		p := SailorPlan{MicroBatch: c.microBatch}
		for _, choice := range k.Choices {
			p.Stages = append(p.Stages, SailorStage{choice.From, choice.To, slices.Repeat([]SailorReplica{c.stages[choice.Shape]}, c.replicas)})
		}
		score, err := s.improve(&p)
		if err != nil {
			return SailorPlan{}, 0, err
		}
		if score < cost {
			best, cost = p, score
		}
	}
	return best, cost, nil
}

// improve moves the cuts of a plan by a layer while that lowers its score.
func (s *Sailor) improve(p *SailorPlan) (float64, error) {
	score, err := s.Score(*p)
	for again := err == nil; again; {
		again = false
		for i := 1; i < len(p.Stages); i++ {
			for _, by := range []int{-1, 1} {
				a, b := &p.Stages[i-1], &p.Stages[i]
				if a.To+by <= a.From || b.From+by >= b.To {
					continue
				}
				a.To, b.From = a.To+by, b.From+by
				if now, err := s.Score(*p); err == nil && now < score {
					score, again = now, true
				} else {
					a.To, b.From = a.To-by, b.From-by
				}
			}
		}
	}
	return score, err
}
