package bucket

// Batch is what one rank computes at once: Count samples from position Start of the epoch's order. A rank may have several in a step.
type Batch struct {
	Start, Count uint32
	Rank         uint32
	longest      uint32 // length to which it is padded
}

// Schedule is one epoch. Step i is Batches[Steps[i]:Steps[i+1]], sorted by rank.
type Schedule struct {
	Ranks   int
	Steps   []uint32
	Batches []Batch
	Skipped int // samples that no batch can hold, left out on request

	plan                    *Plan
	lengths                 Lengths
	order                   *order
	stepSamples, stepTokens float64 // what a mean step of the epoch has over all ranks: the batch of the optimizer

	// If other ranks began the epoch, this schedule has the samples that they left:
	at     []uint32 // their positions in the data set; nil: all samples
	before int      // number of steps that other ranks made
	parts  []Part   // those of other ranks, and this one
}

// Len is the number of steps, without those of other ranks.
func (s *Schedule) Len() int { return len(s.Steps) - 1 }

// Step is the batches of one step.
func (s *Schedule) Step(i int) []Batch { return s.Batches[s.Steps[i]:s.Steps[i+1]] }

// Samples are the samples of a batch, as positions in the data set. They must not be changed. The first call sorts the data set,
// unless Fill did.
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

// named turns positions among the samples of this schedule into positions in the data set.
func (s *Schedule) named(own []uint32) []uint32 {
	if s.at == nil {
		return own
	}
	out := make([]uint32, len(own))
	for k, i := range own {
		out[k] = s.at[i]
	}
	return out
}

// All are the batches of each step, for Judge.
func (s *Schedule) All() (out [][]RankBatch) {
	for i := range s.Len() {
		out = append(out, nil)
		for _, b := range s.Step(i) {
			out[i] = append(out[i], RankBatch{int(b.Rank), s.Samples(b)})
		}
	}
	return out
}

// Recurrence is the share of pairs of samples in one step of an epoch that also share a step of the next epoch, and what that share
// would be if samples were drawn at random for steps of these sizes. It sorts the data set twice.
func (p *Plan) Recurrence(l Lengths, seed, epoch uint64) (again, random float64) {
	step := make([]uint32, len(l)) // of each sample in the next epoch, from 1; 0: in no step
	for i, batches := range p.Schedule(l, seed, epoch+1).All() {
		n := 0.0
		for _, b := range batches {
			n += float64(len(b.Samples))
			for _, s := range b.Samples {
				step[s] = uint32(i) + 1
			}
		}
		random += n / float64(len(l)) * n / float64(len(l))
	}
	var pairs, met float64
	for _, batches := range p.Schedule(l, seed, epoch).All() {
		n, together := 0.0, map[uint32]float64{} // samples so far, by their next step, too
		for _, b := range batches {
			for _, s := range b.Samples {
				pairs += n
				if k := step[s]; k > 0 {
					met += together[k]
					together[k]++
				}
				n++
			}
		}
	}
	return met / max(1, pairs), random
}
