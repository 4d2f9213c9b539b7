package pipeline

import "fmt"

// Schedule is the order in which a stage works on its micro-batches, by its name in plan files.
type Schedule string

// OneForwardOneBackward (1F1B) alternates forward and backward passes after a warm-up. Interleaved is 1F1B with several
// stages on each device. ZeroBubble (ZB-H1) computes the gradients of weights in separate passes. SentAhead (H-1F1B) is
// 1F1B in which each stage runs a given number of forward passes before its first backward pass.
const (
	OneForwardOneBackward Schedule = "1f1b"
	Interleaved           Schedule = "interleaved"
	ZeroBubble            Schedule = "zb-h1"
	SentAhead             Schedule = "h-1f1b"
)

// InFlight is the largest number of micro-batches whose activations a stage holds at a time under 1F1B.
func InFlight(stage, stages, microBatches int) int { return min(microBatches, stages-stage) }

// alternate are the passes of a stage: some forward passes first, then backward and forward passes in turn.
func alternate(stage, ahead, microBatches int) []Operation {
	all := make([]Operation, 0, 2*microBatches)
	for n := range microBatches + ahead {
		if n >= ahead {
			all = append(all, Operation{Stage: stage, MicroBatch: n - ahead, Backward: true})
		}
		if n < microBatches {
			all = append(all, Operation{Stage: stage, MicroBatch: n})
		}
	}
	return all
}

// Orders are the passes of each device in an iteration, without times. Each device has chunks stages; stage k lies on device
// k mod devices. Interleaved needs a multiple of devices as micro-batches; the other schedules have one stage per device. For
// SentAhead see OrdersAhead. Errors wrap ErrPipeline.
func Orders(schedule Schedule, devices, chunks, microBatches int) ([][]Operation, error) {
	if devices < 1 || chunks < 1 || microBatches < 1 || devices > MaxOperations/microBatches/chunks {
		return nil, fmt.Errorf("%w: %d devices x %d stages x %d micro-batches; all at least 1, their product at most %d", ErrPipeline, devices, chunks, microBatches, MaxOperations)
	}
	all := make([][]Operation, devices)
	for d := range all {
		switch {
		case schedule == Interleaved && microBatches%devices == 0:
			all[d] = interleaved(d, devices, chunks, microBatches)
		case schedule == ZeroBubble && chunks == 1:
			all[d] = zeroBubble(d, devices, microBatches)
		case schedule == OneForwardOneBackward && chunks == 1:
			all[d] = alternate(d, InFlight(d, devices, microBatches), microBatches)
		default:
			return nil, fmt.Errorf("%w: %s with %d stages on each of %d devices and %d micro-batches", ErrPipeline, schedule, chunks, devices, microBatches)
		}
	}
	return all, nil
}

// OrdersAhead are the passes of each stage under H-1F1B (Liang et al., HAPT: Heterogeneity-Aware Automated Parallel Training on
// Heterogeneous Clusters, arXiv 2509.24859): 1F1B in which stage i begins with up to warmup[i] forward passes. warmup must not
// rise from stage to stage, or stages would wait for each other. Errors wrap ErrPipeline.
func OrdersAhead(warmup []int, microBatches int) ([][]Operation, error) {
	if len(warmup) == 0 || microBatches < 1 || len(warmup) > MaxOperations/microBatches {
		return nil, fmt.Errorf("%w: %d stages x %d micro-batches; both at least 1, their product at most %d", ErrPipeline, len(warmup), microBatches, MaxOperations)
	}
	all := make([][]Operation, len(warmup))
	for i, ahead := range warmup {
		if ahead < 1 || i > 0 && ahead > warmup[i-1] {
			return nil, fmt.Errorf("%w: forward passes %v before the first backward pass; must be at least 1, and not rise", ErrPipeline, warmup)
		}
		all[i] = alternate(i, min(ahead, microBatches), microBatches)
	}
	return all, nil
}
