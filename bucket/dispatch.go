package bucket

// Batch is what one rank computes at once: Count samples from position Start of the
// epoch's order. Rank comes beside; a rank may have several batches in a step, which it
// computes one after another, accumulating gradients.
type Batch struct {
	Start, Count uint32
	Rank         uint32
}

// Schedule is one epoch. Step i is Batches[Steps[i]:Steps[i+1]], sorted by rank.
type Schedule struct {
	Ranks   int
	Steps   []uint32
	Batches []Batch
	// Skipped counts the samples that no batch can hold, left out on request.
	Skipped int
	// Progress reports how many steps Lines has given, of how many; may be nil.
	Progress func(done, total int)

	lengths Lengths
	limit   int // longest length that is batched
	order   *order
	two     *paired // where samples have two lengths

	// Where it is the rest of an epoch that other ranks began, lengths are of what they left:
	at     []uint32 // positions in the data set; nil: all of it is here
	before int      // steps that others made
	parts  []Part   // theirs, and this one
}

// Len is the number of steps, without those that other ranks made.
func (s *Schedule) Len() int { return len(s.Steps) - 1 }

// Step is the batches of one step.
func (s *Schedule) Step(i int) []Batch { return s.Batches[s.Steps[i]:s.Steps[i+1]] }

// Samples are a batch's, as positions in the data set. The first call sorts the data set
// unless Fill did; not to be changed.
func (s *Schedule) Samples(b Batch) []uint32 { return s.named(s.own(b)) }

func (s *Schedule) own(b Batch) []uint32 {
	s.Fill()
	return s.order.index[b.Start : b.Start+b.Count]
}

// Fill sorts the data set: 4 bytes a sample.
func (s *Schedule) Fill() {
	if s.order != nil && s.order.index == nil {
		s.order.fill(s.lengths)
	}
}

// First is a step's samples, per batch, without sorting the data set: one pass over it.
func (s *Schedule) First(step int) [][]uint32 {
	if s.order.index != nil {
		var out [][]uint32
		for _, b := range s.Step(step) {
			out = append(out, s.Samples(b))
		}
		return out
	}
	some := s.order.some(s.lengths, s.Step(step))
	for k := range some {
		some[k] = s.named(some[k])
	}
	return some
}

// Schedule cuts an epoch of the lengths that the plan was made for.
func (p *Plan) Schedule(l Lengths, seed, epoch uint64) *Schedule {
	if p.Packed {
		return p.dispatchPacked(l, l.histogram(), seed, epoch)
	}
	d := p.dispatch(l, l.histogram(), seed, epoch)
	batches := make([]Batch, len(d.batches))
	for i, b := range d.batches {
		batches[i] = b.Batch
	}
	return &Schedule{Ranks: p.Ranks, Skipped: p.Skipped, Steps: d.steps, Batches: batches, lengths: l, limit: p.limit, order: d.o, two: p.two}
}

// predict scores the epoch 0 of seed 0 without sorting the data set: a batch counts as padded to the longest length that
// its groups hold.
func (p *Plan) predict(l Lengths, full []uint32) Score { return p.predictEpoch(l, full, 0) }

func (p *Plan) predictEpoch(l Lengths, full []uint32, epoch uint64) Score {
	d := p.dispatch(l, full, 0, epoch)
	s := newScorer(p.cost, p.Speeds)
	for i := range len(d.steps) - 1 {
		for k := d.steps[i]; k < d.steps[i+1]; k++ {
			b := d.batches[k]
			if p.two != nil {
				s.pairs(int(b.Rank), int(b.Count), p.two, l, d.o.index[b.Start:b.Start+b.Count])
				continue
			}
			tokens := d.o.before(int(b.Start+b.Count)) - d.o.before(int(b.Start))
			s.batch(int(b.Rank), b.longest, int(b.Count), tokens)
		}
		s.step()
	}
	score := s.score()
	score.Skipped = p.Skipped
	if p.scale = d.scale; p.two != nil {
		p.last = d
	}
	return score
}

// dispatched is an epoch as it is cut.
type dispatched struct {
	o       *order
	steps   []uint32
	batches []placed
	scale   float64 // of the anchors
}
