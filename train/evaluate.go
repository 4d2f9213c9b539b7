package train

// evaluated is how many samples an evaluation takes at a time.
const evaluated = 64

// Evaluate goes through data with the present weights, forward only: how many of its predictions are right, and their
// mean loss.
func (t *Trainer) Evaluate(d Data) (right int, loss float64, err error) {
	var pass *Pass
	width, targets := t.net.InputSize(), t.net.positions
	for first := 0; first < d.Len(); first += evaluated {
		n := min(evaluated, d.Len()-first)
		b := Batch{Inputs: make([]float32, n*width), Targets: make([]int32, n*targets)}
		for i := range n {
			d.Sample(first+i, b.Inputs[i*width:][:width], b.Targets[i*targets:][:targets])
		}
		if pass == nil || pass.samples != n {
			if pass, err = t.net.NewPass(n, false, nil); err != nil {
				return 0, 0, err
			}
		}
		l, err := pass.Loss(t.Weights(), b)
		if err != nil {
			return 0, 0, err
		}
		loss += l * float64(n) / float64(d.Len())
		right += pass.right(b)
	}
	return right, loss, nil
}
