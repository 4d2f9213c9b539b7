package train

import "math"

// crossEntropy is the sum over rows of -log softmax(logits)[target], times scale. Where gradient is given, it is set
// to the result's gradient with respect to the logits; it may be the logits themselves.
func crossEntropy(logits []float32, targets []int32, classes int, scale float64, gradient []float32) float64 {
	var sum float64
	for r, target := range targets {
		row := logits[r*classes:][:classes]
		top := row[0]
		for _, v := range row {
			top = max(top, v)
		}
		var total float64
		for _, v := range row {
			total += math.Exp(float64(v - top))
		}
		sum += math.Log(total) - float64(row[target]-top)
		if gradient == nil {
			continue
		}
		d := gradient[r*classes:][:classes]
		for i, v := range row {
			d[i] = float32(math.Exp(float64(v-top)) / total * scale)
		}
		d[target] -= float32(scale)
	}
	return sum * scale
}

// rightOnes counts the rows whose largest logit is the target's.
func rightOnes(logits []float32, targets []int32, classes int) int {
	n := 0
	for r, target := range targets {
		row := logits[r*classes:][:classes]
		best := 0
		for i, v := range row {
			if v > row[best] {
				best = i
			}
		}
		if best == int(target) {
			n++
		}
	}
	return n
}
