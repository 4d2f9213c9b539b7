// Package even divides a batch of samples among ranks so that all finish together. python/evenkeel/bucket/partition.py does the same,
// number for number; internal/vectors/bucket-partition.json holds what both give.
package even

import (
	"cmp"
	"math"
	"slices"

	"evenkeel/internal/badinput"
)

// Options of Partition. Zero values mean the default.
type Options struct {
	// Free: ranks wait for one another at the end of the batch only, as under data parallelism that accumulates gradients. Then the batch
	// takes as long as its slowest rank, and ranks may have unequal numbers of micro-batches. Without it all have equally many and wait
	// after each, as where a model is sharded: the batch takes the sum over micro-batches of the slowest rank.
	Free bool
	// Samples: one micro-batch a rank, of equally many samples, whose number is a multiple of the ranks. Without MicroBatches, Sizes, Memory and Exchange.
	Samples bool
	// MicroBatches of a rank; more where the memory needs them and, with Free, fewer where it does not. 0: 1.
	MicroBatches int
	Sizes        []float64 // what each sample takes of the memory, at least 0; nil: 1
	Memory       []float64 // most of a micro-batch, per rank, above 0; nil: no limit
	// Padded: a micro-batch costs and takes its number of samples times its largest sample; else the sum of its samples.
	Padded bool
	Fixed  float64 // cost of a micro-batch beside its samples, at least 0
	// Exchange is what it costs each rank to hear of all of a sample, at least 0: with it, samples that last too long for one rank, or exceed its memory,
	// are cut over 2, 4, 8, ... ranks. nil: none is cut.
	Exchange []float64
}

const (
	rounding = 1e-9 // relative
	enough   = 1e-3 // relative: a slot as near to even is left alone
	worth    = 5e-3 // relative: what another micro-batch of each rank must save
)

// Partition divides samples among ranks: for each rank its micro-batches, as rising positions in costs. Costs are at least 0: seconds on a rank of speed 1,
// or anything in proportion; speeds are above 0. Without a limit of memory, no micro-batch is empty unless there are fewer samples than micro-batches.
//
// The longest sample is placed first, each where it ends soonest (LPT: Graham, Bounds on multiprocessing timing anomalies, 1969); padded, the samples are
// cut in order of their cost. Then single samples are exchanged while that shortens the batch.
//
// A sample that is cut over g ranks stands in a micro-batch of its own on each of them, in the same place with equal numbers, before all others with Free. They
// are neighbours, the first a multiple of g: the groups that context parallelism can have made beforehand. Each takes a g-th of the sample's size and cost,
// and 1 - 1/g of its exchange, at the speed of the slowest.
func Partition(costs, speeds []float64, o Options) ([][][]int, error) {
	b, err := newBatch(costs, speeds, o)
	if err != nil {
		return nil, err
	}
	least := math.Inf(1)
	var best *batch
	for limit, fails := math.Inf(1), 0; fails < 2 && least > sum(costs)/sum(speeds)*(1+worth); limit = b.longest / 2 { // or nothing can be worth it
		if changed, err := b.widen(limit); err != nil {
			return nil, err
		} else if !changed && best != nil {
			break
		}
		if next, took := b.search(); took < least*(1-worth) {
			best, least, fails = next, took, 0
		} else {
			fails++
		}
	}
	return best.result(), nil
}

// search divides by more and more micro-batches, until they are worth it no more.
func (b *batch) search() (best *batch, least float64) {
	least = math.Inf(1)
	for b.steps = b.fewest(); ; b.steps++ {
		took, ok := b.divide()
		if ok && took >= least*(1-worth) {
			return best, least
		} else if ok {
			found := *b
			best, least = &found, took
		}
		if ok && (b.Memory == nil && len(b.order) == len(b.c) || b.steps >= len(b.c)) {
			return best, least
		}
	}
}

// batch is a division. Micro-batch k of rank r is bin k x ranks + r. A unit is what ranks wait for: a bin or, with Free, a rank. A slot has a unit of each rank.
type batch struct {
	Options
	c, s, v, m []float64 // costs, sizes; speeds, memory of ranks
	ranks      int
	steps      int     // bins of a rank
	order      []int   // of the samples that are not cut, the costliest first
	members    [][]int // of each bin
	cuts
}

func newBatch(costs, speeds []float64, o Options) (*batch, error) {
	n, ranks := len(costs), len(speeds)
	b := &batch{Options: o, c: costs, v: speeds, s: o.Sizes, m: o.Memory, ranks: ranks, cuts: cuts{wide: slices.Repeat([]int{1}, n)}}
	if b.s == nil {
		b.s = slices.Repeat([]float64{1}, n)
	}
	if b.m == nil {
		b.m = slices.Repeat([]float64{math.Inf(1)}, ranks)
	}
	switch {
	case ranks == 0:
		return nil, badinput.Errorf("speeds: give one per rank")
	case len(b.s) != n:
		return nil, badinput.Errorf("sizes: %d of them for %d samples", len(b.s), n)
	case len(b.m) != ranks:
		return nil, badinput.Errorf("memory: %d limits for %d ranks", len(b.m), ranks)
	case o.Exchange != nil && (o.Padded || len(o.Exchange) != n):
		return nil, badinput.Errorf("exchange: %d of them for %d samples; samples that are cut cannot be padded", len(o.Exchange), n)
	case o.Samples && (n%ranks != 0 || o.Free || o.MicroBatches > 1 || o.Sizes != nil || o.Memory != nil || o.Exchange != nil):
		return nil, badinput.Errorf("counts of samples: %d samples for %d ranks; give a multiple, and neither free counts, micro-batches, sizes, memory nor exchange", n, ranks)
	case o.MicroBatches < 0 || !(o.Fixed >= 0) || math.IsInf(o.Fixed, 0):
		return nil, badinput.Errorf("micro-batches %d, fixed %v: must not be below 0", o.MicroBatches, o.Fixed)
	}
	for _, f := range []struct {
		name, of string
		all      []float64
		zero     bool
	}{{"costs", "sample", costs, true}, {"sizes", "sample", b.s, true}, {"exchange", "sample", o.Exchange, true}, {"speeds", "rank", speeds, false}, {"memory", "rank", o.Memory, false}} {
		for i, x := range f.all {
			if !(x >= 0) || math.IsInf(x, 0) || x == 0 && !f.zero {
				return nil, badinput.Errorf("%s: %s %d has %v; must be a number %s 0", f.name, f.of, i, x, map[bool]string{true: "from", false: "above"}[f.zero])
			}
		}
	}
	if o.Samples {
		b.m = slices.Repeat([]float64{float64(n / ranks)}, ranks)
	}
	if n > 0 {
		bins := float64(n) + float64(ranks)*float64(max(1, o.MicroBatches))
		if seconds := (slices.Max(costs) + o.Fixed + slices.Max(append([]float64{0}, o.Exchange...))) * bins / slices.Min(speeds) * sum(speeds); math.IsInf(seconds, 0) {
			return nil, badinput.Errorf("costs up to %g by speeds from %g: their sum is no finite number", slices.Max(costs), slices.Min(speeds))
		}
	}
	return b, nil
}

// fewest micro-batches of a rank: each has room for its share.
func (b *batch) fewest() int {
	steps, most, size := max(1, b.MicroBatches), 0.0, 0.0
	if b.Padded || b.Memory == nil || len(b.order) == 0 {
		return steps
	}
	for r, v := range b.v {
		most = max(most, v/b.m[r])
	}
	for i, x := range b.s {
		if b.wide[i] == 1 {
			size += x
		}
	}
	return max(steps, int(min(float64(len(b.c)), math.Ceil(size/sum(b.v)*most*(1-rounding)))))
}

func sum(x []float64) (total float64) {
	for _, v := range x {
		total += v
	}
	return total
}

func (b *batch) speed(bin int) float64 { return b.v[bin%b.ranks] }
func (b *batch) room(bin int) float64  { return b.m[bin%b.ranks] }

// divide divides by the present number of micro-batches. It returns the seconds of the batch; false if it does not fit.
func (b *batch) divide() (least float64, ok bool) {
	var starts [][][]int
	var best [][]int
	if fits := b.pin(); b.Padded {
		starts = b.cut()
	} else if fits && b.place() {
		starts = [][][]int{b.members}
	}
	for _, b.members = range starts {
		b.fill()
		if took := b.exchange(); !ok || took < least {
			least, best, ok = took, b.members, true
		}
	}
	if ok {
		b.members = best
	}
	return least, ok
}

// durations are what each bin would last if the work could be divided at will, the longest first: samples that alone last longer make those of their slot
// longer, one a fastest rank. With Free, samples that are cut leave a rank the rest of its time.
func (b *batch) durations() []float64 {
	fastest, left, speed, at := slices.Max(b.v), 0.0, sum(b.v), 0
	for _, i := range b.order {
		left += b.c[i]
	}
	left += float64(b.Fixed * float64(b.ranks*b.steps))
	for k := range b.held {
		if b.pinned(k) {
			left += float64(b.held[k]*b.speed(k)) - b.Fixed
		}
	}
	out := make([]float64, b.ranks*b.steps)
	if b.Free && slices.Max(b.count) > 0 {
		for k := range out {
			r := k % b.ranks
			out[k] = max(0, left/speed-b.busy[r]) / float64(max(1, b.steps-b.count[r]))
		}
		return out
	}
	for k := range b.steps {
		even, alone, row := left/(speed*float64(b.steps-k)), slices.Max(b.held[k*b.ranks:(k+1)*b.ranks]), out[k*b.ranks:]
		if at < len(b.order) {
			alone = max(alone, (b.Fixed+b.c[b.order[at]])/fastest)
		}
		if alone <= even {
			copy(row, slices.Repeat([]float64{even}, len(row)))
			break
		}
		for r, v := range b.v {
			if row[r] = alone; v == fastest && !b.pinned(k*b.ranks+r) {
				at++
			}
		}
		left = max(0, left-float64(alone*speed))
	}
	return out
}

// place gives each sample to the bin that would end first, counted back from the end of its slot.
func (b *batch) place() bool {
	durations := b.durations()
	longest := slices.Max(durations)
	b.members = make([][]int, b.ranks*b.steps)
	load, used := slices.Repeat([]float64{b.Fixed}, len(b.members)), make([]float64, len(b.members))
	for _, i := range b.order {
		to, first := -1, math.Inf(1)
		for k := range b.members {
			if !b.pinned(k) && used[k]+b.s[i] <= b.room(k) {
				if end := (longest - durations[k]) + (load[k]+b.c[i])/b.speed(k); end < first {
					to, first = k, end
				}
			}
		}
		if to < 0 {
			return false
		}
		load[to], used[to], b.members[to] = load[to]+b.c[i], used[to]+b.s[i], append(b.members[to], i)
	}
	return true
}

// unit is the unit of a bin.
func (b *batch) unit(bin int) int { return bin % b.units() }

func (b *batch) units() int {
	if b.Free {
		return b.ranks
	}
	return len(b.members)
}

// samples of a unit.
func (b *batch) samples(unit int) (n int) {
	for k := unit; k < len(b.members); k += b.units() {
		if n += len(b.members[k]); b.pinned(k) {
			n++
		}
	}
	return n
}

// fill gives a unit without samples the cheapest sample that another can spare.
func (b *batch) fill() {
	for u := range b.units() {
		if b.samples(u) > 0 {
			continue
		}
		for _, i := range slices.Backward(b.order) {
			a := slices.IndexFunc(b.members, func(m []int) bool { return slices.Contains(m, i) })
			if b.s[i] <= b.room(u) && b.samples(b.unit(a)) > 1 {
				b.members[a] = slices.DeleteFunc(b.members[a], func(k int) bool { return k == i })
				b.members[u] = append(b.members[u], i)
				break
			}
		}
	}
}

// result is the division by rank. With Free, a rank has no empty bins and, if samples are not padded, as few as first fit finds.
func (b *batch) result() [][][]int {
	out := make([][][]int, b.ranks)
	for r := range out {
		cut, own := [][]int{}, [][]int{}
		for k := r; k < len(b.members); k += b.ranks {
			m := append([]int{}, slices.Sorted(slices.Values(b.members[k]))...)
			if b.pinned(k) {
				m = []int{b.sample[k]}
			}
			if b.pinned(k) && b.Free {
				cut = append(cut, m)
			} else if len(m) > 0 || !b.Free {
				own = append(own, m)
			}
		}
		if b.Free && !b.Padded {
			if merged := b.merged(r, own); len(merged) < len(own) {
				own = merged
			}
		}
		if b.Free || slices.Max(b.count) == 0 { // the ranks of a sample that is cut have it in the same place
			slices.SortStableFunc(own, func(p, q []int) int { return cmp.Compare(b.price(q, b.c), b.price(p, b.c)) })
		}
		out[r] = append(cut, own...)
	}
	return out
}

func (b *batch) merged(r int, own [][]int) (out [][]int) {
	all := slices.Concat(own...)
	slices.SortFunc(all, func(i, j int) int { return cmp.Or(cmp.Compare(b.s[j], b.s[i]), i-j) })
	for _, i := range all {
		k := slices.IndexFunc(out, func(m []int) bool { return b.price(append(slices.Clone(m), i), b.s) <= b.m[r] })
		if k < 0 {
			k, out = len(out), append(out, nil)
		}
		out[k] = append(out[k], i)
	}
	for _, m := range out {
		slices.Sort(m)
	}
	return out
}

// price is what samples cost or take.
func (b *batch) price(samples []int, x []float64) (total float64) {
	if b.Padded {
		for _, i := range samples {
			total = max(total, x[i])
		}
		return float64(len(samples)) * total
	}
	for _, i := range slices.Sorted(slices.Values(samples)) {
		total += x[i]
	}
	return total
}
