package bucket

import (
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// Cost predicts a step of one rank of speed 1.
type Cost interface {
	// Seconds of a batch of that many samples padded to length.
	Seconds(length, batch int) float64
	// Cap is the largest batch of that length that fits into memory; 0: none. A longer
	// sample's is no larger.
	Cap(length int) int
	// Breaks are batch sizes, rising, between which Seconds of that length is a straight
	// line in the batch; none where it is one from 1 to Cap. By them the most efficient
	// batch is found exactly.
	Breaks(length int) []int
}

// device is a cost as a device has it: lengths padded to a multiple, time in multiples of the batch, and a step's limits.
type device struct {
	Cost
	limits limits
}

// limits are those of one batch of the largest share.
type limits struct{ padTo, multiple, samples, tokens int }

// stepLimits are the plan's, for a batch: a step's over the sum of the shares.
func (p *Plan) stepLimits() limits {
	_, classes := slots(p.Speeds, p.MicroBatches)
	sum := 0.0
	for _, c := range classes {
		sum += c.share * float64(len(c.slots))
	}
	if p.Packed { // a step's limits hold for all ranks together
		return limits{padTo: 1, multiple: 1}
	}
	per := func(n int) int { return int(float64(n) / sum) }
	return limits{max(1, p.PadTo), max(1, p.BatchMultiple), per(p.MaxSamples), per(p.MaxTokens)}
}

func (d device) padded(length int) int { return up(length, d.limits.padTo) }

func up(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Seconds of a batch of that many samples padded to length.
func (d device) Seconds(length, batch int) float64 {
	return d.Cost.Seconds(d.padded(length), up(batch, d.limits.multiple))
}

// Cap is the largest batch within memory and the limits.
func (d device) Cap(length int) int {
	return d.limits.of(d.room(length))
}

func (d device) stepLimits() limits { return d.limits }

func (d device) room(length int) (batch, tokens int) {
	length = d.padded(length)
	return d.Cost.Cap(length), length
}

func (d device) name(length int) string { return fmt.Sprint("length ", length) }

// of is how many samples of so many tokens, n at the most, make a batch.
func (l limits) of(n, tokens int) int {
	if l.samples > 0 {
		n = min(n, l.samples)
	}
	if l.tokens > 0 {
		n = min(n, l.tokens/tokens)
	}
	if l.multiple > 0 && n >= l.multiple {
		n -= n % l.multiple
	}
	return n
}

// check names a limit that leaves all batches empty.
func (l limits) check(p *Plan) error {
	for _, f := range []struct {
		name        string
		value, size int
	}{{"max samples", p.MaxSamples, l.samples}, {"max tokens", p.MaxTokens, l.tokens}} {
		if f.value > 0 && f.size < 1 && !p.Packed {
			return input.Errorf("%s %d: the batches of %d ranks would be empty", f.name, f.value, p.Ranks)
		}
	}
	return nil
}

// Breaks are whole multiples beside those of the cost.
func (d device) Breaks(length int) []int {
	inner := d.Cost.Breaks(d.padded(length))
	m := d.limits.multiple
	if m == 1 {
		return inner
	}
	out := []int{m}
	for _, b := range inner {
		out = append(out, b-b%m, up(b, m))
	}
	out = slices.DeleteFunc(out, func(b int) bool { return b < 1 })
	slices.Sort(out)
	return slices.Compact(out)
}
