package bucket

import (
	"cmp"
	"slices"

	"evenkeel/internal/badinput"
)

// Cost predicts a step of one rank of speed 1.
type Cost interface {
	// Seconds of a batch of that many samples padded to length. Per sample they do not rise with the batch up to Cap.
	Seconds(length, batch int) float64
	// Cap is the largest batch of that length that fits into memory; 0: none. It never rises with the length.
	Cap(length int) int
}

// Score is what a schedule costs.
type Score struct {
	EpochSeconds float64 `json:"epoch_seconds"` // sum over steps of the slowest rank's time
	Steps        int     `json:"steps"`
	Imbalance    float64 `json:"imbalance"`     // sum of maxima / sum of means over ranks
	ImbalanceP99 float64 `json:"imbalance_p99"` // of max / mean per step
	Padding      float64 `json:"padding"`       // share of padded tokens
	OutOfMemory  int     `json:"out_of_memory"` // batches
	Lost         int     `json:"lost"`
	Repeated     int     `json:"repeated"`
	Skipped      int     `json:"skipped"` // left out as too long, on request; not lost
}

// scorer adds up the batches of an epoch, step by step.
type scorer struct {
	speeds, now                  []float64
	maxima, means, tokens, cells float64
	ratios                       []float64
	oom                          int
}

func newScorer(speeds []float64) *scorer {
	return &scorer{speeds: speeds, now: make([]float64, len(speeds))}
}

// batch adds a batch to the current step.
func (s *scorer) batch(c Cost, rank, length, batch int) {
	s.now[rank] += c.Seconds(length, batch) / s.speeds[rank]
	s.cells += float64(length * batch)
	if batch > c.Cap(length) {
		s.oom++
	}
}

// step ends the current step.
func (s *scorer) step() {
	sum := 0.0
	for _, v := range s.now {
		sum += v
	}
	most, mean := slices.Max(s.now), sum/float64(len(s.now))
	s.maxima += most
	s.means += mean
	if mean > 0 {
		s.ratios = append(s.ratios, most/mean)
	}
	clear(s.now)
}

// score is that of all steps so far.
func (s *scorer) score() Score {
	out := Score{EpochSeconds: s.maxima, Steps: len(s.ratios), OutOfMemory: s.oom}
	if len(s.ratios) > 0 {
		slices.Sort(s.ratios)
		out.Imbalance, out.ImbalanceP99 = s.maxima/s.means, s.ratios[min(len(s.ratios)-1, len(s.ratios)*99/100)]
		out.Padding = 1 - s.tokens/s.cells
	}
	return out
}

// RankBatch is one batch of a rank in a step.
type RankBatch struct {
	Rank    int
	Samples []uint32
}

// Judge scores any schedule. Batches are padded to their longest sample, and samples are cut to limit if that is above 0. A sample in no batch is lost;
// each time after the first it is repeated.
func Judge(l Lengths, steps [][]RankBatch, c Cost, speeds []float64, limit int) (Score, error) {
	s, seen, distinct, samples := newScorer(speeds), make([]bool, len(l)), 0, 0
	for step, batches := range steps {
		for _, b := range batches {
			if b.Rank < 0 || b.Rank >= len(speeds) {
				return Score{}, badinput.Errorf("step %d: rank %d of %d", step, b.Rank, len(speeds))
			}
			longest := 0
			for _, i := range b.Samples {
				if int(i) >= len(l) {
					return Score{}, badinput.Errorf("step %d: sample %d of %d", step, i, len(l))
				}
				n := min(int(l[i]), cmp.Or(limit, MaxLength))
				longest, s.tokens = max(longest, n), s.tokens+float64(n)
				if samples++; !seen[i] {
					seen[i] = true
					distinct++
				}
			}
			if len(b.Samples) > 0 {
				s.batch(c, b.Rank, longest, len(b.Samples))
			}
		}
		s.step()
	}
	score := s.score()
	score.Lost, score.Repeated = len(l)-distinct, samples-distinct
	return score, nil
}
