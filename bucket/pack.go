package bucket

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// packed is the cost of samples that lie end to end in a batch, without padding, as attention of variable length computes them: a
// fixed time, and of each sample a time and a part of the memory. A batch of one length, as large as is most efficient, takes what the table says.
type packed struct {
	Cost           // of batches of one length
	fixed  float64 // seconds
	sample []float64
	room   []float64 // of the memory, by length
	work   float64   // seconds of all samples, without what is fixed
	filled float64   // memories that they fill
}

func newPacked(c Cost, hist []uint32) *packed {
	p := &packed{Cost: c, sample: make([]float64, len(hist)), room: make([]float64, len(hist))}
	weight := 0.0
	for l, n := range hist {
		if n == 0 {
			continue
		}
		if top := c.Cap(l); top > 1 {
			one := c.Seconds(l, 1)
			p.fixed += float64(n) * max(0, one-(c.Seconds(l, top)-one)/float64(top-1))
			weight += float64(n)
		}
	}
	if weight > 0 {
		p.fixed /= weight
	}
	best, rate := efficient(hist, c)
	for l, n := range hist {
		if n > 0 {
			p.sample[l] = max(0, rate[l]-p.fixed/float64(best[l]))
			p.room[l] = 1 / float64(c.Cap(l))
			p.work += float64(n) * p.sample[l]
			p.filled += float64(n) * p.room[l]
		}
	}
	return p
}

// Seconds of a batch of that many samples of a length.
func (p *packed) Seconds(length, batch int) float64 {
	return p.fixed + float64(batch)*p.sample[length]
}

// of is what a sample of a length adds to a batch.
func (p *packed) of(length int) (seconds, room float64) {
	if length >= len(p.room) { // it fits nowhere
		return p.Cost.Seconds(length, 1), 2
	}
	return p.sample[length], p.room[length]
}

// Breaks has none: time is a straight line in the batch.
func (*packed) Breaks(int) []int { return nil }

// checkPacked refuses what has no meaning where nothing is padded.
func (f *Config) checkPacked() error {
	switch {
	case !f.Packed:
		return nil
	case f.Mixing != nil && *f.Mixing != 1:
		return input.Errorf("packed, mixing %v: packed batches are drawn in random order, which costs nothing; leave mixing out", *f.Mixing)
	case f.PadTo > 1 || f.BatchMultiple > 1:
		return input.Errorf("packed, pad to %d, batch multiple %d: packed batches are not padded; leave these out", f.PadTo, f.BatchMultiple)
	case f.MicroBatches > 1:
		return input.Errorf("packed, micro batches %d: each rank has one packed batch in a step; leave this out", f.MicroBatches)
	}
	one := 1.0
	f.Mixing = &one
	return nil
}

// mostPacked is the number of samples up to which several numbers of steps are tried.
const mostPacked = 1_000_000

// tunePacked finds the anchor duration by the number of steps: as few as memory allows, which samples of chance do not fill to the last.
func (p *Plan) tunePacked(l Lengths) error {
	fills := []float64{1, .995, .99, .98, .97, .95, .9}
	if len(l) > mostPacked {
		fills = []float64{.98}
	}
	best, before := math.Inf(1), 0
	steps := 0
	var score Score
	for _, fill := range fills {
		n := p.packedSteps(fill)
		if n == before {
			continue
		}
		p.EvenSteps, before = n, n
		s, err := Judge(l, p.Schedule(l, 0, 0).All(), p.cost, p.Speeds, p.limit, nil)
		if err != nil {
			return err
		}
		if s.EpochSeconds < best {
			best, steps, score = s.EpochSeconds, n, s
		}
	}
	score.Skipped, score.Lost = p.Skipped, 0
	p.EvenSteps, p.Score = steps, score
	p.Anchors = []float64{p.anchorPacked(steps)}
	p.target = slices.Repeat(p.Anchors, len(p.hist))
	return nil
}

// packedSteps is the least number of steps in which the fastest rank's batches fill that part of the memory.
func (p *Plan) packedSteps(fill float64) int {
	c := p.cost.(*packed)
	tokens, samples := 0.0, 0.0
	for l, n := range p.hist {
		tokens += float64(n) * float64(l)
		samples += float64(n)
	}
	duration := (c.fixed + c.work/c.filled*fill) / slices.Max(p.Speeds)
	step := 0.0
	for _, v := range p.Speeds {
		step += max(0, duration*v-c.fixed)
	}
	n := max(1, c.filled/(fill*float64(p.Ranks)))
	if step > 0 {
		n = max(n, c.work/step)
	}
	if p.MaxSamples > 0 {
		n = max(n, samples/float64(p.MaxSamples))
	}
	if p.MaxTokens > 0 {
		n = max(n, tokens/(float64(p.MaxTokens)*fill))
	}
	return min(int(math.Ceil(n)), p.Samples)
}

// anchorPacked is the duration of so many equal steps.
func (p *Plan) anchorPacked(steps int) float64 {
	c, speed := p.cost.(*packed), 0.0
	for _, v := range p.Speeds {
		speed += v
	}
	return (c.work/float64(steps) + c.fixed*float64(p.Ranks)) / speed
}

// dispatchPacked draws the samples in random order, as many for each step as are an equal part of the work that is left, and deals
// them to the ranks, the longest first, each to the rank that is through with it first and has room. What finds no room waits for the next step. A
// step whose longest sample outlasts its part takes more beside it.
func (p *Plan) dispatchPacked(l Lengths, full []uint32, seed, epoch uint64) *Schedule {
	c := p.cost.(*packed)
	o := newOrder(l, full, p.keys(seed, epoch))
	o.fill(l)
	end := o.start[len(o.start)-2]
	length := func(i uint32) int { return min(int(l[i]), p.limit) }
	left, speed, fastest := c.work, 0.0, slices.Max(p.Speeds)
	for _, v := range p.Speeds {
		speed += v
	}
	overhead := c.fixed * float64(p.Ranks)
	out := &Schedule{Ranks: p.Ranks, Skipped: p.Skipped, Steps: []uint32{0}, lengths: l, limit: p.limit, order: o}
	index := make([]uint32, 0, len(l))
	d := newPackers(p.Speeds, c.fixed)
	var chunk, waiting []uint32
	for at, step := 0, 0; at < end || len(waiting) > 0; step++ {
		quota := left / float64(max(1, p.EvenSteps-step)) * (1 + 1e-9)
		chunk = chunk[:0]
		work, tokens := 0.0, 0
		take := func(i uint32) bool {
			n := length(i)
			x := c.sample[n]
			quota = max(quota, speed*(c.fixed+x)/fastest-overhead)
			if len(chunk) > 0 && (work+x/2 > quota || p.MaxTokens > 0 && tokens+n > p.MaxTokens || p.MaxSamples > 0 && len(chunk) == p.MaxSamples) {
				return false
			}
			chunk, work, tokens = append(chunk, i), work+x, tokens+n
			return true
		}
		taken := 0
		for taken < len(waiting) && take(waiting[taken]) {
			taken++
		}
		for taken == len(waiting) && at < end && take(o.index[at]) {
			at++
		}
		waiting = append(waiting[:0], waiting[taken:]...)
		slices.SortFunc(chunk, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(c.sample[length(b)], c.sample[length(a)]), cmp.Compare(a, b))
		})
		d.clear()
		for _, i := range chunk {
			if n := length(i); !d.put(i, c.sample[n], c.room[n]) {
				waiting = append(waiting, i)
				work -= c.sample[n]
			}
		}
		left -= work
		for rank := range d.all {
			if s := d.all[rank].samples; len(s) > 0 {
				out.Batches = append(out.Batches, Batch{uint32(len(index)), uint32(len(s)), uint32(rank)})
				index = append(index, s...)
			}
		}
		out.Steps = append(out.Steps, uint32(len(out.Batches)))
	}
	o.index = append(index, o.index[end:]...)
	return out
}

// packers are the ranks in a step.
type packers struct {
	all     []packer
	classes []*packerHeap // of equal speeds
}

type packer struct {
	speed, load, room float64
	rank              int
	samples           []uint32
}

func newPackers(speeds []float64, fixed float64) *packers {
	d := &packers{all: make([]packer, len(speeds))}
	at := map[float64]*packerHeap{}
	for i, v := range speeds {
		d.all[i] = packer{speed: v, rank: i}
		h := at[v]
		if h == nil {
			h = &packerHeap{fixed: fixed}
			at[v] = h
			d.classes = append(d.classes, h)
		}
		h.packers = append(h.packers, &d.all[i])
	}
	return d
}

// clear empties all ranks.
func (d *packers) clear() {
	for i := range d.all {
		p := &d.all[i]
		p.load, p.room, p.samples = 0, 0, p.samples[:0]
	}
	for _, h := range d.classes {
		slices.SortFunc(h.packers, func(a, b *packer) int { return a.rank - b.rank }) // equal loads: a heap
	}
}

// put gives a sample to the rank that is through with it first among those that have room; false if none has.
func (d *packers) put(sample uint32, seconds, room float64) bool {
	var first *packerHeap
	at := math.Inf(1)
	for _, h := range d.classes {
		h.full = h.full[:0]
		for len(h.packers) > 0 && h.packers[0].room+room > 1+1e-9 {
			h.full = append(h.full, heap.Pop(h).(*packer))
		}
		if len(h.packers) > 0 {
			if p := h.packers[0]; (h.fixed+p.load+seconds)/p.speed < at {
				first, at = h, (h.fixed+p.load+seconds)/p.speed
			}
		}
	}
	if first != nil {
		p := first.packers[0]
		p.load, p.room, p.samples = p.load+seconds, p.room+room, append(p.samples, sample)
		heap.Fix(first, 0)
	}
	for _, h := range d.classes {
		for _, p := range h.full { // a smaller sample may have room there
			heap.Push(h, p)
		}
	}
	return first != nil
}

// packerHeap has the rank of the least load first, of equals the first.
type packerHeap struct {
	packers, full []*packer
	fixed         float64
}

func (h *packerHeap) Len() int { return len(h.packers) }

func (h *packerHeap) Less(i, j int) bool {
	a, b := h.packers[i], h.packers[j]
	return cmp.Or(cmp.Compare(a.load, b.load), a.rank-b.rank) < 0
}

func (h *packerHeap) Swap(i, j int) { h.packers[i], h.packers[j] = h.packers[j], h.packers[i] }

// Push is heap.Interface's.
func (h *packerHeap) Push(p any) { h.packers = append(h.packers, p.(*packer)) }

// Pop is heap.Interface's.
func (h *packerHeap) Pop() any {
	p := h.packers[len(h.packers)-1]
	h.packers = h.packers[:len(h.packers)-1]
	return p
}
