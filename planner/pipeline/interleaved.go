package pipeline

// interleaved is the order of a device under interleaved 1F1B (Narayanan et al., Efficient Large-Scale Language Model Training
// on GPU Clusters Using Megatron-LM, arXiv 2104.04473) as Megatron-LM runs it (get_pp_rank_microbatches, get_schedule_table).
// Each device has several stages. It takes as many micro-batches as there are devices through one stage, then through the next.
func interleaved(device, devices, chunks, microBatches int) []Operation {
	total := chunks * microBatches
	warmup := min(total, 2*(devices-device-1)+(chunks-1)*devices)
	pass := func(n int, backward bool) Operation {
		chunk := n % (devices * chunks) / devices
		if backward {
			chunk = chunks - 1 - chunk
		}
		return Operation{Stage: chunk*devices + device, MicroBatch: n/(devices*chunks)*devices + n%devices, Backward: backward}
	}
	all := make([]Operation, 0, 2*total)
	for n := range total + warmup {
		if n < total {
			all = append(all, pass(n, false))
		}
		if n >= warmup {
			all = append(all, pass(n-warmup, true))
		}
	}
	return all
}
