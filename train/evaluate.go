package train

// evaluated is how many samples an evaluation takes at a time.
const evaluated = 64

// Evaluate goes through data with the present weights, forward only: how many of its predictions are right, and their
// mean loss.
func (t *Trainer) Evaluate(d Data) (right int, loss float64, err error) {
	return t.net.Evaluate(t.nodes[0].weights, d)
}

// Evaluate is the number of right predictions over data, and the mean loss.
func (n *Network) Evaluate(w *Values, d Data) (right int, loss float64, err error) {
	var pass *Pass
	width, targets := n.InputSize(), n.positions
	for first := 0; first < d.Len(); first += evaluated {
		count := min(evaluated, d.Len()-first)
		b := Batch{Inputs: make([]float32, count*width), Targets: make([]int32, count*targets)}
		for i := range count {
			d.Sample(first+i, b.Inputs[i*width:][:width], b.Targets[i*targets:][:targets])
		}
		if pass == nil || pass.samples != count {
			if pass, err = n.NewPass(count, false); err != nil {
				return 0, 0, err
			}
		}
		l, err := pass.Loss(w, b)
		if err != nil {
			return 0, 0, err
		}
		loss += l * float64(count) / float64(d.Len())
		right += rightOnes(pass.logits(), b.Targets, n.classes)
	}
	return right, loss, nil
}
