package bucket

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Score is what a schedule costs.
type Score struct {
	EpochSeconds float64 `json:"epoch_seconds"` // sum over steps of the slowest rank's time
	Steps        int     `json:"steps"`
	Imbalance    float64 `json:"imbalance"`     // sum of maxima / sum of means over ranks
	ImbalanceP99 float64 `json:"imbalance_p99"` // of max / mean per step
	Padding      float64 `json:"padding"`       // share of padded tokens
	// Of two lengths, each by itself.
	SourcePadding float64 `json:"source_padding,omitempty"`
	TargetPadding float64 `json:"target_padding,omitempty"`
	OutOfMemory   int     `json:"out_of_memory"` // batches
	Lost          int     `json:"lost"`
	Repeated      int     `json:"repeated"`
	Skipped       int     `json:"skipped"` // left out as too long, on request; not lost
}

type scorer struct {
	cost          Cost
	speeds, now   []float64
	maxima, means float64
	ratios        []float64
	tokens, cells float64
	sides         [2][2]float64 // of sources and targets: tokens, cells
	oom           int
	times         func(step int, perRank []float64)
}

func newScorer(c Cost, speeds []float64) *scorer {
	return &scorer{cost: c, speeds: speeds, now: make([]float64, len(speeds))}
}

func (s *scorer) batch(rank, longest, count int, tokens float64) {
	s.now[rank] += s.cost.Seconds(longest, count) / s.speeds[rank]
	s.tokens += tokens
	s.cells += float64(longest * count)
	if count > s.cost.Cap(longest) {
		s.oom++
	}
}

// pairs takes in a batch of samples with two lengths.
func (s *scorer) pairs(rank, count int, two *paired, l Lengths, samples []uint32) {
	longest, sources, targets := two.batch(l, samples)
	source, target := two.sides(longest)
	s.now[rank] += two.Seconds(longest, count) / s.speeds[rank]
	for k, tokens := range [2]float64{sources, targets} {
		cells := float64([2]int{source, target}[k] * count)
		s.tokens, s.cells = s.tokens+tokens, s.cells+cells
		s.sides[k][0], s.sides[k][1] = s.sides[k][0]+tokens, s.sides[k][1]+cells
	}
	if count > two.Cap(longest) {
		s.oom++
	}
}

// pack takes in a batch that is not padded.
func (s *scorer) pack(rank int, seconds, room, tokens float64) {
	s.now[rank] += seconds / s.speeds[rank]
	s.tokens += tokens
	s.cells += tokens
	if room > 1+1e-9 {
		s.oom++
	}
}

func (s *scorer) step() {
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
	if s.times != nil {
		s.times(len(s.ratios)-1, s.now)
	}
	clear(s.now)
}

func (s *scorer) score() Score {
	out := Score{EpochSeconds: s.maxima, Steps: len(s.ratios), OutOfMemory: s.oom}
	if len(s.ratios) == 0 {
		return out
	}
	slices.Sort(s.ratios)
	out.Imbalance = s.maxima / s.means
	out.ImbalanceP99 = s.ratios[min(len(s.ratios)-1, len(s.ratios)*99/100)]
	out.Padding = 1 - s.tokens/s.cells
	if s.sides[0][1] > 0 {
		out.SourcePadding, out.TargetPadding = 1-s.sides[0][0]/s.sides[0][1], 1-s.sides[1][0]/s.sides[1][1]
	}
	return out
}

// StepSize is what a step of the predicted epoch holds over all ranks, in the mean: the batch of the optimizer. Tokens are without
// padding; of two lengths both count. The plan is one that was made or bound.
func (p *Plan) StepSize() (samples, tokens float64) {
	for l, n := range p.hist {
		if n == 0 {
			continue
		}
		long := l
		if p.two != nil {
			long = p.two.shapes[l].Source + p.two.shapes[l].Target
		}
		samples, tokens = samples+float64(n), tokens+float64(n)*float64(long)
	}
	steps := float64(max(1, p.Steps))
	return samples / steps, tokens / steps
}

// StepBatches is how many batches each rank has in a full step; fillers come on top. Packed it is one, as large as the rank is fast.
func (p *Plan) StepBatches() []int {
	if p.Packed {
		return slices.Repeat([]int{1}, p.Ranks)
	}
	out := make([]int, p.Ranks)
	of, _ := slots(p.Speeds, p.MicroBatches)
	for _, rank := range of {
		out[rank]++
	}
	return out
}

// Steps is a schedule from anywhere: the next step's batches per rank, nil at the end.
type Steps func() (batches []RankBatch, err error)

// RankBatch is one batch of a rank in a step.
type RankBatch struct {
	Rank    int
	Samples []uint32
}

// All gives the schedule's steps to Judge.
func (s *Schedule) All() Steps {
	i := 0
	var out []RankBatch
	return func() ([]RankBatch, error) {
		if i == s.Len() {
			return nil, nil
		}
		out = out[:0]
		for _, b := range s.Step(i) {
			out = append(out, RankBatch{int(b.Rank), s.Samples(b)})
		}
		i++
		return out, nil
	}
}

// Listed gives steps that lie in memory to Judge.
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

// Judge scores any schedule: batches are padded to their longest sample (not by the cost of a packed plan), cut to limit if
// that is above 0 (overlong samples truncated). A sample that appears in no batch is
// lost, beyond its first time repeated. Times, if given, gets every step's seconds per
// rank, not to be kept.
func Judge(l Lengths, steps Steps, c Cost, speeds []float64, limit int, times func(step int, perRank []float64)) (Score, error) {
	s := newScorer(c, speeds)
	s.times = times
	end, _ := c.(*packed)
	two, _ := c.(*paired)
	seen := make([]uint64, (len(l)+63)/64)
	distinct, repeated := 0, 0
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
			longest, tokens := 0, 0
			var seconds, room float64 // where they lie end to end
			for _, i := range b.Samples {
				if int(i) >= len(l) {
					return Score{}, input.Errorf("step %d: sample %d of %d", step, i, len(l))
				}
				n := int(l[i])
				if limit > 0 {
					n = min(n, limit)
				}
				longest = max(longest, n)
				tokens += n
				if end != nil {
					s, r := end.of(n)
					seconds, room = seconds+s, room+r
				}
				if bit := uint64(1) << (i % 64); seen[i/64]&bit != 0 {
					repeated++
				} else {
					seen[i/64] |= bit
					distinct++
				}
			}
			if len(b.Samples) > 0 && two != nil {
				s.pairs(b.Rank, len(b.Samples), two, l, b.Samples)
			} else if len(b.Samples) > 0 && end != nil {
				s.pack(b.Rank, end.fixed+seconds, room, float64(tokens))
			} else if len(b.Samples) > 0 {
				s.batch(b.Rank, longest, len(b.Samples), float64(tokens))
			}
		}
		s.step()
	}
	score := s.score()
	score.Lost, score.Repeated = len(l)-distinct, repeated
	return score, nil
}

// Checksum names the lengths: XXH3 of their little-endian bytes, in hexadecimal.
func (l Lengths) Checksum() string {
	h := xxh3.New()
	buf := make([]byte, 0, 1<<16)
	for i, v := range l {
		buf = binary.LittleEndian.AppendUint32(buf, v)
		if len(buf) == cap(buf) || i == len(l)-1 {
			_, _ = h.Write(buf) // never fails
			buf = buf[:0]
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
