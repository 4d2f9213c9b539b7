package bucket

import "slices"

// Recurrence is the share of the pairs of samples in one step of an epoch that share a step in the next epoch too, under a
// seed, and what it would be if samples were drawn at random for steps of these sizes. It sorts the data set twice.
func (p *Plan) Recurrence(l Lengths, seed, epoch uint64) (again, random float64) {
	next := p.Schedule(l, seed, epoch+1)
	step := make([]uint32, len(l)) // from 1; 0: in none
	for i := range next.Len() {
		for _, b := range next.Step(i) {
			for _, s := range next.Samples(b) {
				step[s] = uint32(i) + 1
			}
		}
	}
	chance := 0.0
	for i := range next.Len() {
		n := 0
		for _, b := range next.Step(i) {
			n += int(b.Count)
		}
		chance += float64(n) / float64(len(l)) * float64(n) / float64(len(l))
	}
	now := p.Schedule(l, seed, epoch)
	var pairs, met float64
	var found []uint32
	for i := range now.Len() {
		found = found[:0]
		for _, b := range now.Step(i) {
			for _, s := range now.Samples(b) {
				found = append(found, step[s])
			}
		}
		slices.Sort(found)
		n := float64(len(found))
		pairs += n * (n - 1) / 2
		for from := 0; from < len(found); {
			to := from
			for to < len(found) && found[to] == found[from] {
				to++
			}
			if m := float64(to - from); found[from] > 0 {
				met += m * (m - 1) / 2
			}
			from = to
		}
	}
	if pairs == 0 {
		return 0, chance
	}
	return met / pairs, chance
}
