package bucket

import (
	"slices"

	"evenkeel/bucket/internal/input"
)

// Cost predicts a step of one rank of speed 1.
type Cost interface {
	// Seconds of a batch of that many samples padded to length.
	Seconds(length, batch int) float64
	// Cap is the largest batch of that length that fits into memory; 0: none. It never rises with the length.
	Cap(length int) int
	// Breaks are rising batch sizes. Between two of them, Seconds of that length is linear in the batch; none: it is linear from 1 to
	// Cap. They serve to find the most efficient batch exactly.
	Breaks(length int) []int
}

// Measured is what one batch takes.
type Measured struct {
	Seconds     float64 // on a rank of speed 1
	OutOfMemory bool
	// Tokens and Cells (tokens with padding): of sources and of targets, or only the first of each if samples have one length.
	Tokens, Cells [2]float64
}

// Measurer is a Cost that measures batches itself, for modes that do not pad a batch to its longest sample.
type Measurer interface {
	Cost
	Measure(lengths []uint32) Measured
}

// Padded is what a batch takes whose samples are padded to one length.
func Padded(c Cost, length, batch int, tokens float64) Measured {
	return Measured{Seconds: c.Seconds(length, batch), OutOfMemory: batch > c.Cap(length), Tokens: [2]float64{tokens}, Cells: [2]float64{float64(length * batch)}}
}

// Score is what a schedule costs.
type Score struct {
	EpochSeconds float64 `json:"epoch_seconds"` // sum over steps of the slowest rank's time
	Steps        int     `json:"steps"`
	Imbalance    float64 `json:"imbalance"`     // sum of maxima / sum of means over ranks
	ImbalanceP99 float64 `json:"imbalance_p99"` // of max / mean per step
	Padding      float64 `json:"padding"`       // share of padded tokens
	// With two lengths, each by itself.
	SourcePadding float64 `json:"source_padding,omitempty"`
	TargetPadding float64 `json:"target_padding,omitempty"`
	OutOfMemory   int     `json:"out_of_memory"` // batches
	Lost          int     `json:"lost"`
	Repeated      int     `json:"repeated"`
	Skipped       int     `json:"skipped"` // left out as too long, on request; not lost
}

// Scorer adds up the batches of an epoch, step by step.
type Scorer struct {
	// Times, if given, is called with the seconds of each rank in every step; it must not keep them.
	Times func(step int, perRank []float64)

	speeds, now   []float64
	maxima, means float64
	ratios        []float64
	tokens, cells [2]float64
	oom           int
}

// NewScorer makes a Scorer for ranks of these speeds.
func NewScorer(speeds []float64) *Scorer {
	return &Scorer{speeds: speeds, now: make([]float64, len(speeds))}
}

// Batch adds a batch to the current step.
func (s *Scorer) Batch(rank int, m Measured) {
	s.now[rank] += m.Seconds / s.speeds[rank]
	for k := range 2 {
		s.tokens[k], s.cells[k] = s.tokens[k]+m.Tokens[k], s.cells[k]+m.Cells[k]
	}
	if m.OutOfMemory {
		s.oom++
	}
}

// Step ends the current step.
func (s *Scorer) Step() {
	sum, most := 0.0, 0.0
	for _, v := range s.now {
		sum += v
		most = max(most, v)
	}
	mean := sum / float64(len(s.now))
	s.maxima += most
	s.means += mean
	if mean > 0 {
		s.ratios = append(s.ratios, most/mean)
	}
	if s.Times != nil {
		s.Times(len(s.ratios)-1, s.now)
	}
	clear(s.now)
}

// Score is the score of all steps so far.
func (s *Scorer) Score() Score {
	out := Score{EpochSeconds: s.maxima, Steps: len(s.ratios), OutOfMemory: s.oom}
	if len(s.ratios) == 0 {
		return out
	}
	slices.Sort(s.ratios)
	out.Imbalance = s.maxima / s.means
	out.ImbalanceP99 = s.ratios[min(len(s.ratios)-1, len(s.ratios)*99/100)]
	out.Padding = 1 - (s.tokens[0]+s.tokens[1])/(s.cells[0]+s.cells[1])
	if s.cells[1] > 0 {
		out.SourcePadding, out.TargetPadding = 1-s.tokens[0]/s.cells[0], 1-s.tokens[1]/s.cells[1]
	}
	return out
}

// Steps iterates over the steps of a schedule: it returns the batches of the next step, or nil at the end.
type Steps func() (batches []RankBatch, err error)

// RankBatch is one batch of a rank in a step.
type RankBatch struct {
	Rank    int
	Samples []uint32
}

// Listed iterates over steps in memory.
func Listed(s [][]RankBatch) Steps {
	i := 0
	return func() ([]RankBatch, error) {
		if i == len(s) {
			return nil, nil
		}
		i++
		return s[i-1], nil
	}
}

// Judge scores any schedule. Batches are padded to their longest sample, unless the cost is a Measurer, and samples are cut to limit
// if that is above 0. A sample in no batch is lost; each time after the first it is repeated. times, if given, is called with the
// seconds of each rank in every step; it must not keep them.
func Judge(l Lengths, steps Steps, c Cost, speeds []float64, limit int, times func(step int, perRank []float64)) (Score, error) {
	s := NewScorer(speeds)
	s.Times = times
	own, _ := c.(Measurer)
	seen := make([]uint64, (len(l)+63)/64)
	distinct, repeated := 0, 0
	var lengths []uint32 // of a batch
	for step := 1; ; step++ {
		batches, err := steps()
		if err != nil {
			return Score{}, err
		}
		if batches == nil {
			break
		}
		for _, b := range batches {
			if b.Rank < 0 || b.Rank >= len(speeds) {
				return Score{}, input.Errorf("step %d: rank %d of %d", step, b.Rank, len(speeds))
			}
			lengths = lengths[:0]
			longest, tokens := uint32(0), 0
			for _, i := range b.Samples {
				if int(i) >= len(l) {
					return Score{}, input.Errorf("step %d: sample %d of %d", step, i, len(l))
				}
				n := l[i]
				if limit > 0 {
					n = min(n, uint32(limit))
				}
				longest = max(longest, n)
				tokens += int(n)
				lengths = append(lengths, n)
				if bit := uint64(1) << (i % 64); seen[i/64]&bit != 0 {
					repeated++
				} else {
					seen[i/64] |= bit
					distinct++
				}
			}
			switch {
			case len(lengths) == 0:
			case own != nil:
				s.Batch(b.Rank, own.Measure(lengths))
			default:
				s.Batch(b.Rank, Padded(c, int(longest), len(lengths), float64(tokens)))
			}
		}
		s.Step()
	}
	score := s.Score()
	score.Lost, score.Repeated = len(l)-distinct, repeated
	return score, nil
}
