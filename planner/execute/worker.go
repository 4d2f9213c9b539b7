package execute

import (
	"context"
	"fmt"
	"slices"
	"time"

	"evenkeel/planner/pipeline"
)

// worker runs a stage's iterations and exchanges micro-batches with the neighbouring stages.
type worker struct {
	stage                  *stage
	order                  []pipeline.Operation
	prev, next             *link
	activations, gradients chan received // from the previous and from the next stage
	echoes                 chan struct{}
	in, out                *pool       // buffers of a micro-batch that comes in, and that goes out
	held                   [][]float32 // inputs of the micro-batches in flight, by slot
	measured               Measured
	ended                  time.Time // end of the previous iteration
}

type received struct {
	frame
	floats []float32
}

// Measured is what a stage measured. Times are seconds, without those of the first iteration if there are more.
type Measured struct {
	Stage      int     `json:"stage"`
	Iterations int     `json:"iterations"`
	Seconds    float64 `json:"seconds"`  // of these iterations, of which:
	Forward    float64 `json:"forward"`  // forward passes
	Backward   float64 `json:"backward"` // backward passes with recomputation
	Update     float64 `json:"update"`   // summing gradients over replicas, and updating weights
	// Bytes sent to both neighbours in the whole run: Payload counts activations and gradients, Wire what TLS sent, with handshakes and
	// trials.
	Payload int64 `json:"sent_bytes"`
	Wire    int64 `json:"wire_bytes"`
}

// Idle is the share of the time in which the stage did not compute.
func (m Measured) Idle() float64 {
	if m.Seconds <= 0 {
		return 0
	}
	return max(0, 1-(m.Forward+m.Backward+m.Update)/m.Seconds)
}

func newWorker(j *Job, number int, t Training) (*worker, error) {
	s, err := newStage(j, number, t)
	if err != nil {
		return nil, err
	}
	stages := len(j.Plan.Stages)
	orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, stages, 1, j.Plan.MicroBatches())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	// Neighbours are ahead by at most the number of micro-batches in flight.
	return &worker{stage: s, order: orders[number], activations: make(chan received, stages+1), gradients: make(chan received, stages+1), echoes: make(chan struct{}, 1),
		in: newPool(j.Plan.MicroBatch * s.in), out: newPool(j.Plan.MicroBatch * s.out), held: make([][]float32, s.inFlight), measured: Measured{Stage: number}}, nil
}

func (w *worker) fromPrevious(f frame, body []byte) error {
	switch f.kind {
	case activation:
		return take(f, body, w.in, w.activations)
	case echo:
		if offer(w.echoes, struct{}{}) {
			return nil
		}
	}
	return fmt.Errorf("%w: kind %d from the previous stage", errFrame, f.kind)
}

func (w *worker) fromNext(f frame, body []byte) error {
	switch f.kind {
	case gradient:
		return take(f, body, w.out, w.gradients)
	case probe:
		w.next.send(outgoing{frame: frame{kind: echo}, body: slices.Clone(body)})
		return nil
	}
	return fmt.Errorf("%w: kind %d from the next stage", errFrame, f.kind)
}

func take(f frame, body []byte, p *pool, into chan<- received) error {
	b := p.get()
	if err := words(b, body); err != nil {
		return err
	}
	if !offer(into, received{f, b}) {
		return fmt.Errorf("%w: more micro-batches than can be in flight", errFrame)
	}
	return nil
}

func receive(ctx context.Context, from <-chan received, iteration uint64, microBatch int) ([]float32, error) {
	r, err := await(ctx, from)
	if err == nil && (r.iteration != iteration || int(r.microBatch) != microBatch) {
		err = fmt.Errorf("%w: micro-batch %d of iteration %d came for %d of %d", errFrame, r.microBatch, r.iteration, microBatch, iteration)
	}
	return r.floats, err
}

// iterate runs one iteration. The first stage is given the batch's inputs; the last stage is given its targets, and returns the loss.
func (w *worker) iterate(ctx context.Context, iteration uint64, inputs []float32, targets []int32) (float64, error) {
	since := w.ended // waiting for the iteration to begin counts as idle
	if since.IsZero() {
		since = time.Now()
	}
	var forward, backward time.Duration
	sum := 0.0
	for _, op := range w.order {
		m := op.MicroBatch
		if op.Backward {
			took, l, err := w.backward(ctx, iteration, m, targets)
			if err != nil {
				return 0, err
			}
			backward += took
			sum += l
			continue
		}
		took, err := w.forward(ctx, iteration, m, inputs)
		if err != nil {
			return 0, err
		}
		forward += took
	}
	updating := time.Now()
	w.stage.update()
	now := time.Now()
	w.ended = now
	d := &w.measured
	if d.Iterations == 1 && w.stage.steps == 2 { // the first iteration warmed up
		*d = Measured{Stage: d.Stage, Payload: d.Payload}
	}
	d.Iterations++
	d.Seconds += now.Sub(since).Seconds()
	d.Forward += forward.Seconds()
	d.Backward += backward.Seconds()
	d.Update += now.Sub(updating).Seconds()
	return sum, nil
}

func (w *worker) forward(ctx context.Context, iteration uint64, m int, inputs []float32) (time.Duration, error) {
	s := w.stage
	var x, y []float32
	var err error
	if s.first {
		x = inputs[m*w.in.size:][:w.in.size]
	} else if x, err = receive(ctx, w.activations, iteration, m); err != nil {
		return 0, err
	}
	w.held[m%s.inFlight] = x
	if !s.last {
		y = w.out.get()
	}
	begun := time.Now()
	if err := s.forward(m, x, y); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	if !s.last {
		w.send(w.next, activation, iteration, m, y, w.out)
	}
	return took, nil
}

func (w *worker) backward(ctx context.Context, iteration uint64, m int, targets []int32) (time.Duration, float64, error) {
	s := w.stage
	var dy, dx []float32
	var err error
	if s.last {
		n := len(targets) / s.job.Plan.MicroBatches()
		targets = targets[m*n:][:n]
	} else if dy, err = receive(ctx, w.gradients, iteration, m); err != nil {
		return 0, 0, err
	}
	if !s.first {
		dx = w.in.get()
	}
	begun := time.Now()
	l, err := s.backward(m, dy, targets, dx)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begun)
	if dy != nil {
		w.out.put(dy)
	}
	if !s.first {
		w.in.put(w.held[m%s.inFlight])
		w.send(w.prev, gradient, iteration, m, dx, w.in)
	}
	return took, l, nil
}

func (w *worker) send(to *link, k kind, iteration uint64, m int, values []float32, p *pool) {
	w.measured.Payload += 4 * int64(len(values))
	to.send(outgoing{frame: frame{k, iteration, uint32(m)}, floats: values, pool: p})
}

// report is what was measured, with the bytes that the links sent.
func (w *worker) report() Measured {
	m := w.measured
	for _, l := range []*link{w.prev, w.next} {
		if l != nil {
			m.Wire += l.wire.sent.Load()
		}
	}
	return m
}
