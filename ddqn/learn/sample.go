package learn

import "math/rand/v2"

// batch is a number of drawn n-step windows, one group of rows each, laid out for the training graph.
type batch struct {
	x, later []float32 // rows x features, at the start of the window and at its end
	actions  []int     // rows
	returns  []float32 // rows x objectives: sum over k of gamma^k r
	live     []float32 // rows, 1 or 0
	weights  []float32 // groups x objectives, of the step at the start
	discount []float32 // groups: what the value at the end counts; 0 after a terminal
}

func newBatch(groups, group, features, objectives int) *batch {
	rows := groups * group
	return &batch{
		x: make([]float32, rows*features), later: make([]float32, rows*features),
		actions: make([]int, rows), returns: make([]float32, rows*objectives), live: make([]float32, rows),
		weights: make([]float32, groups*objectives), discount: make([]float32, groups),
	}
}

// samples is the number of steps from which an n-step window can be drawn: those that are no Last step and whose
// window of n steps is held to its end, or to the Last step where the episode ends earlier.
func (r *Replay) samples(n int) int {
	total := 0
	for i := range r.streams {
		st := &r.streams[i]
		total += st.count - st.lasts - min(n, st.open)
	}
	return total
}

// sample fills b with windows of at most n steps, drawn uniformly with replacement. It draws any step held and
// rejects it if no window starts there; the caller has made sure that Samples(n) is positive.
func (r *Replay) sample(b *batch, n int, gamma float32, rng *rand.Rand) {
	total := r.size()
	for g := range b.discount {
		for {
			i, s := rng.IntN(total), 0
			for ; i >= r.streams[s].count; s++ {
				i -= r.streams[s].count
			}
			if length := r.streams[s].window(i, n); length > 0 {
				r.fill(b, g, &r.streams[s], i, length, gamma)
				break
			}
		}
	}
}

// at is the place in the ring of the i-th oldest step.
func (s *stream) at(i int) int {
	return (s.next - s.count + i + 2*s.capacity) % s.capacity
}

// window returns the number of steps from the i-th oldest step to the end of its n-step window, or 0 if none starts
// there. Steps that were overwritten are before the oldest one, so no window can reach them.
func (s *stream) window(i, n int) int {
	for k := range n + 1 {
		if i+k >= s.count {
			return 0
		}
		if s.kinds[s.at(i+k)].kind() == Last {
			return k
		}
	}
	return n
}

// fill writes the window of the given length from the i-th oldest step on as group g of the batch. A row counts
// only if it is live in every step of the window: one that leaves, joins or leaves and returns earned nothing that
// belongs to its first action alone.
func (r *Replay) fill(b *batch, g int, s *stream, i, length int, gamma float32) {
	m, f, o := r.cfg.Group, r.cfg.Features, r.cfg.Objectives
	start, end := s.at(i), s.at(i+length)
	copy(b.x[g*m*f:][:m*f], s.rows[start*m*f:])
	copy(b.later[g*m*f:][:m*f], s.rows[end*m*f:])
	copy(b.weights[g*o:][:o], s.weights[start*o:])
	for j, a := range s.actions[start*m:][:m] {
		b.actions[g*m+j] = int(a)
	}
	live, returns := b.live[g*m:][:m], b.returns[g*m*o:][:m*o]
	for j := range live {
		live[j] = 1
	}
	clear(returns)
	discount := float32(1)
	for k := range length + 1 {
		p := s.at(i + k)
		for j, ok := range s.live[p*m:][:m] {
			if !ok {
				live[j] = 0
			}
		}
		if k == length {
			break
		}
		for j, reward := range s.rewards[p*m*o:][:m*o] {
			returns[j] += float32(discount * reward)
		}
		discount *= gamma
	}
	if s.kinds[end].isTerminal() {
		discount = 0
	}
	b.discount[g] = discount
}
