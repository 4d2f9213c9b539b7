package execute

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"evenkeel/planner/pipeline"
)

// stageTimes are the seconds that a stage takes for a micro-batch, measured before the run, in all stages at the same time.
type stageTimes struct {
	pipeline.Timing
	Update float64 // once per iteration
}

// A measurement is the median of 3 to 25 trials, in about half a second.
const (
	fewTrials  = 3
	mostTrials = 25
	trialTime  = time.Second / 2
)

// more reports whether trial i should be made; trial 0 warms up.
func more(i int, begun time.Time) bool {
	return i <= fewTrials || i <= mostTrials && time.Since(begun) < trialTime
}

// trial is the number of the iteration in which the stages measure themselves.
const trial = math.MaxUint64

// measure runs one micro-batch of the data through the pipeline, so that every stage computes with numbers like those of the run (zeros would
// be quicker). Then it repeats its own passes while the other stages do the same, and a transfer to the previous stage and back. It does not
// change the weights. send is the seconds of a transfer in one direction.
func (w *worker) measure(ctx context.Context, inputs []float32, targets []int32) (t stageTimes, send float64, err error) {
	s := w.stage
	var x, dy []float32
	y, dx := w.out.get(), w.in.get()
	if s.first {
		x, dx = inputs[:w.in.size], nil
	} else if x, err = receive(ctx, w.activations, trial, 0); err != nil {
		return t, 0, err
	}
	if s.last {
		y, targets = nil, targets[:s.job.Plan.MicroBatch*s.job.Network.Positions()]
	}
	if err := s.forward(0, x, y); err != nil {
		return t, 0, err
	}
	if !s.last {
		w.next.send(outgoing{frame: frame{kind: activation, iteration: trial}, floats: slices.Clone(y)})
		if dy, err = receive(ctx, w.gradients, trial, 0); err != nil {
			return t, 0, err
		}
	}
	if _, err := s.backward(0, dy, targets, dx); err != nil {
		return t, 0, err
	}
	if !s.first {
		w.prev.send(outgoing{frame: frame{kind: gradient, iteration: trial}, floats: slices.Clone(dx)})
	}
	m := min(1, s.job.Plan.MicroBatches()-1) // micro-batch 0 does not add gradients up
	var forward, backward, update []float64
	s.try(func() {
		for i, first := 0, time.Now(); more(i, first); i++ {
			begun := time.Now()
			if err = s.forward(m, x, y); err != nil {
				return
			}
			middle := time.Now()
			if _, err = s.backward(m, dy, targets, dx); err != nil {
				return
			}
			end := time.Now()
			s.update()
			if i > 0 { // trial 0 touches memory for the first time
				forward, backward, update = append(forward, middle.Sub(begun).Seconds()), append(backward, end.Sub(middle).Seconds()), append(update, time.Since(end).Seconds())
			}
		}
	})
	if err != nil {
		return t, 0, err
	}
	t = stageTimes{pipeline.Timing{Forward: median(forward), Backward: median(backward)}, median(update)}
	if s.first {
		return t, 0, nil
	}
	var oneWay []float64
	for i, first := 0, time.Now(); more(i, first); i++ {
		begun := time.Now()
		w.prev.send(outgoing{frame: frame{kind: probe}, floats: x})
		if _, err := await(ctx, w.echoes); err != nil {
			return t, 0, err
		}
		if i > 0 {
			oneWay = append(oneWay, time.Since(begun).Seconds()/2)
		}
	}
	return t, median(oneWay), nil
}

// median sorts its argument.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// predict simulates an iteration under 1F1B with these times. Transfers overlap with computing, as in a run; send[k] is the seconds in which a
// micro-batch of stage k reaches the previous stage.
func predict(stages []stageTimes, send []float64, microBatches int) (float64, error) {
	timings, update := make([]pipeline.Timing, len(stages)), 0.0
	for k, t := range stages {
		timings[k] = t.Timing
		if k+1 < len(stages) {
			timings[k].SendNext = send[k+1]
		}
		update = max(update, t.Update)
	}
	orders, err := pipeline.Orders(pipeline.OneForwardOneBackward, len(stages), 1, microBatches)
	if err != nil {
		return 0, err
	}
	_, seconds, err := pipeline.Simulate(timings, orders, true)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errFrame, err)
	}
	return seconds + update, nil
}
