package data

// Part is some of a set's samples.
type Part struct {
	Set
	numbers []int
}

// Len is Set's.
func (p *Part) Len() int { return len(p.numbers) }

// Sample is Set's.
func (p *Part) Sample(i int, inputs []float32, targets []int32) {
	p.Set.Sample(p.numbers[i], inputs, targets)
}

// Split holds out every nth sample, the last of each n.
func Split(s Set, n int) (training, held *Part) {
	training, held = &Part{Set: s}, &Part{Set: s}
	for i := range s.Len() {
		if i%n == n-1 {
			held.numbers = append(held.numbers, i)
		} else {
			training.numbers = append(training.numbers, i)
		}
	}
	return training, held
}
