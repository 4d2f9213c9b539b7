package execute

import (
	"math/rand/v2"
	"slices"
	"sync"

	"evenkeel/planner/pipeline"
	"evenkeel/train"
)

// stage is the weights of one stage and its replicas, which are goroutines with the same weights. Each replica takes its samples of every
// micro-batch. The gradients of the replicas are summed in order, once in an iteration. Only one goroutine may use a stage.
type stage struct {
	job       *Job
	number    int
	inFlight  int
	in, out   int // floats of a sample that come in and go out
	first     bool
	last      bool
	parts     []*train.Part
	weights   []*train.Values // of a part each
	moments   [][]*train.Values
	optimizer train.Optimizer
	replicas  []*replica
	scale     float64 // 1 / targets of the global batch
	steps     uint64
}

// replica takes samples begin to begin+samples-1 of every micro-batch.
type replica struct {
	*stage
	begin, samples int
	passes         [][]*train.PartPass // by part and slot; micro-batch m uses slot m mod inFlight. A checkpointed part has one for all slots
	inputs         [][][]float32       // by part and slot
	sum, current   []*train.Values     // gradients of each part: of all micro-batches so far, and of this one
	flow           []float32           // the gradient between two parts
	loss           float64
	err            error
}

func newStage(j *Job, number int, t Training) (*stage, error) {
	plan := j.Plan
	p, m := len(plan.Stages), plan.MicroBatches()
	s := &stage{job: j, number: number, inFlight: pipeline.InFlight(number, p, m), in: j.width(number), out: j.width(number + 1),
		first: number == 0, last: number == p-1, optimizer: t.Optimizer, scale: 1 / float64(plan.GlobalBatch*j.Network.Positions())}
	all := &train.Values{}
	from, to := plan.Stages[number].From, plan.Stages[number].To
	for unit := from; unit < to; unit++ {
		part, err := j.part(unit)
		if err != nil {
			return nil, err
		}
		values := make([]*train.Values, 1+t.Optimizer.Moments())
		for i := range values {
			values[i] = part.NewValues()
		}
		s.parts, s.weights, s.moments = append(s.parts, part), append(s.weights, values[0]), append(s.moments, values[1:])
		all.Params = append(all.Params, values[0].Params...)
	}
	whole, err := j.Network.Part(j.Units[from].From, j.Units[to-1].To)
	if err != nil {
		return nil, err
	}
	whole.Initialize(all, rand.New(rand.NewPCG(t.Seed, 0)))
	begin := 0
	for _, samples := range j.shares(number) {
		r, err := s.newReplica(begin, samples)
		if err != nil {
			return nil, err
		}
		s.replicas = append(s.replicas, r)
		begin += samples
	}
	return s, nil
}

func (s *stage) newReplica(begin, samples int) (*replica, error) {
	r := &replica{stage: s, begin: begin, samples: samples}
	from := s.job.Plan.Stages[s.number].From
	var recomputed []*train.Part
	for p := range s.parts {
		if s.job.checkpointed(from + p) {
			recomputed = append(recomputed, s.parts[p])
		}
	}
	shared, err := train.OnePassEach(recomputed, samples)
	if err != nil {
		return nil, err
	}
	flow := 0
	for p, part := range s.parts {
		in, out := part.Sizes()
		flow = max(flow, in, out)
		passes, inputs := make([]*train.PartPass, s.inFlight), make([][]float32, s.inFlight)
		checkpointed := s.job.checkpointed(from + p)
		for slot := range passes {
			switch {
			case checkpointed:
				passes[slot] = shared[0]
			case slot == 0:
				passes[slot], err = part.NewPass(samples)
			default:
				passes[slot], err = passes[0].Beside()
			}
			if err != nil {
				return nil, err
			}
			if r.kept(p) {
				inputs[slot] = make([]float32, samples*in)
			}
		}
		if checkpointed {
			shared = shared[1:]
		}
		for _, g := range []*[]*train.Values{&r.sum, &r.current} {
			v := part.NewValues()
			*g = append(*g, v)
		}
		r.passes, r.inputs = append(r.passes, passes), append(r.inputs, inputs)
	}
	r.flow = make([]float32, samples*flow)
	return r, nil
}

// each runs do for all replicas concurrently, and returns the error of the first replica that failed.
func (s *stage) each(do func(r *replica) error) error {
	if len(s.replicas) == 1 {
		return do(s.replicas[0])
	}
	var all sync.WaitGroup
	for _, r := range s.replicas {
		all.Go(func() { r.err = do(r) })
	}
	all.Wait()
	for _, r := range s.replicas {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// forward runs micro-batch m through the stage. x has in floats for each sample, y gets out floats for each; y is nil in the last stage. x must
// not change until backward.
func (s *stage) forward(m int, x, y []float32) error {
	return s.each(func(r *replica) error { return r.forward(m%s.inFlight, x, y) })
}

// backward runs micro-batch m backward, from the gradient dy (in the last stage, from the targets) to the gradient dx, which is nil in the first
// stage. It returns the micro-batch's part of the loss.
func (s *stage) backward(m int, dy []float32, targets []int32, dx []float32) (float64, error) {
	if err := s.each(func(r *replica) error { return r.backward(m, dy, targets, dx) }); err != nil {
		return 0, err
	}
	loss := 0.0
	for _, r := range s.replicas {
		loss += r.loss
	}
	return loss, nil
}

// rows are the replica's samples of a micro-batch.
func (r *replica) rows(all []float32, width int) []float32 {
	return all[r.begin*width:][:r.samples*width]
}

func (r *replica) forward(slot int, x, y []float32) error {
	x = r.rows(x, r.in)
	for p := range r.parts {
		if r.kept(p) {
			copy(r.inputs[p][slot], x)
		} else {
			r.inputs[p][slot] = x
		}
		var err error
		if x, err = r.passes[p][slot].Forward(r.weights[p], r.inputs[p][slot]); err != nil {
			return err
		}
	}
	if y != nil {
		copy(r.rows(y, r.out), x)
	}
	return nil
}

// kept says whether the input of a part must be copied, because the previous part is checkpointed and reuses its memory.
func (r *replica) kept(p int) bool {
	return p > 0 && r.job.checkpointed(r.job.Plan.Stages[r.number].From+p-1)
}

func (r *replica) backward(m int, dy []float32, targets []int32, dx []float32) error {
	slot, from := m%r.inFlight, r.job.Plan.Stages[r.number].From
	flow := r.flow
	if dy != nil {
		flow = r.rows(dy, r.out)
	}
	for p := len(r.parts) - 1; p >= 0; p-- {
		pass := r.passes[p][slot]
		if r.job.checkpointed(from + p) {
			if _, err := pass.Forward(r.weights[p], r.inputs[p][slot]); err != nil {
				return err
			}
		}
		if r.last && p == len(r.parts)-1 {
			positions := r.job.Network.Positions()
			var err error
			if r.loss, err = pass.Loss(targets[r.begin*positions:][:r.samples*positions], r.scale); err != nil {
				return err
			}
		} else {
			copy(pass.OutputGradient(), flow)
		}
		g := r.sum[p]
		if m > 0 {
			g = r.current[p]
		}
		back := pass.Backward(r.weights[p], g)
		if m > 0 {
			for layer, d := range g.Layers {
				add(r.sum[p].Layers[layer], d)
			}
		}
		if back != nil {
			flow = r.flow[:len(back)]
			copy(flow, back)
		}
	}
	if dx != nil {
		copy(r.rows(dx, r.in), flow)
	}
	return nil
}

func add(sum, d []float32) {
	for i, v := range d {
		sum[i] += v
	}
}

// update sums the gradients over the replicas and changes the weights.
func (s *stage) update() {
	s.steps++
	for p := range s.parts {
		g := s.replicas[0].sum[p]
		for layer, d := range g.Layers {
			if d == nil {
				continue
			}
			for _, r := range s.replicas[1:] {
				add(d, r.sum[p].Layers[layer])
			}
			var moments [][]float32
			for _, m := range s.moments[p] {
				moments = append(moments, m.Layers[layer])
			}
			s.optimizer.Update(s.steps, s.weights[p].Layers[layer], d, moments...)
		}
	}
}

// try runs do, and then restores weights and moments.
func (s *stage) try(do func()) {
	var all, before [][]float32
	for p, w := range s.weights {
		for _, v := range append([]*train.Values{w}, s.moments[p]...) {
			all = append(all, v.Layers...)
		}
	}
	for _, v := range all {
		before = append(before, slices.Clone(v))
	}
	steps := s.steps
	do()
	s.steps = steps
	for i, v := range before {
		copy(all[i], v)
	}
}
