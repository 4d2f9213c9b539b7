package pipeline

// zeroBubble is the order of a stage under ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, arXiv 2401.10241), like PyTorch's
// ScheduleInterleavedZeroBubble with one stage per device: 1F1B in which a backward pass sends its gradient on before the
// gradients of the weights are computed. Stage i computes those i backward passes later, to fill the bubbles of the last stages.
func zeroBubble(stage, stages, microBatches int) []Operation {
	ahead := min(microBatches, stages-stage)
	all := make([]Operation, 0, 3*microBatches)
	for n := range ahead {
		all = append(all, Operation{Stage: stage, MicroBatch: n})
	}
	for n := range microBatches + stage {
		if n < microBatches {
			all = append(all, Operation{Stage: stage, MicroBatch: n, Backward: true})
		}
		if w := n - stage; w >= 0 {
			all = append(all, Operation{Stage: stage, MicroBatch: w, Backward: true, Weights: true})
		}
		if f := n + ahead; n < microBatches && f < microBatches {
			all = append(all, Operation{Stage: stage, MicroBatch: f})
		}
	}
	return all
}
