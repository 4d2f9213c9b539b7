package forward

import (
	"runtime"
	"slices"
	"sync"
)

// term is a move along one direction of one step. Amounts are integers in units of 2^-24. Each is rounded separately to the
// unit of a tensor, so minus takes back exactly what plus added.
type term struct {
	step      uint32
	direction uint32
	plus      int64 // amount added
	minus     int64 // amount subtracted
}

const (
	rowEntries = 128     // signs in a random block
	longest    = 1 << 12 // signs of a direction, at most
	partLen    = 1 << 16 // a sweep uses one core for every so many entries

	windows    = 1         // "direction" of the random numbers that say where a row's window begins
	ringTensor = 1<<32 - 1 // "tensor" of the signs of rings
)

// ring is the sum of a step's moves. What it adds to a row of entries is one of its windows times the row's signs, which all
// directions share: so one sweep over the weights moves them along any number of directions.
type ring struct {
	key  [2]uint32
	step uint32
	sum  []int32 // the first row follows again after the last
}

// ringEntries returns the length of rings for a number of weights: a power of two.
func ringEntries(weights int) int {
	n := rowEntries
	for n < min(weights, longest) {
		n *= 2
	}
	return n
}

// newRings returns a ring of entries for each step that has terms, in units of 2^(shift-24).
func newRings(key uint64, shift uint, entries int, terms []term) (rings []*ring) {
	for _, t := range terms {
		n := nearest(t.plus, shift) - nearest(t.minus, shift)
		if n == 0 {
			continue
		}
		i := slices.IndexFunc(rings, func(r *ring) bool { return r.step == t.step })
		if i < 0 {
			i, rings = len(rings), append(rings, &ring{keyOf(key), t.step, make([]int32, entries+rowEntries)})
		}
		same := slices.Repeat([]int32{int32(n)}, rowEntries)
		sweep(rings[i].sum[:entries], stream{keyOf(key), t.step, t.direction, ringTensor}, 0, same, func(int) (from [8]uint32) { return from })
	}
	for _, r := range rings {
		copy(r.sum[entries:], r.sum)
	}
	return rings
}

// add adds the moves to the entries of a tensor.
func (r *ring) add(w []int32, tensor uint32) {
	where, entries := stream{r.key, r.step, windows, tensor}, uint32(len(r.sum)-rowEntries)
	inParts(w, func(part []int32, row int) {
		sweep(part, stream{r.key, r.step, 0, tensor}, row, r.sum, func(row int) (from [8]uint32) {
			for i, b := range where.block(row / 8) {
				from[2*i], from[2*i+1] = b%entries, b>>16%entries
			}
			return from
		})
	})
}

// sweep adds to each row of w the entries of ring from where eight rows' windows begin, times the row's signs: its lowest bit
// first, 0 is +1. w begins with the given row, a multiple of 8.
func sweep(w []int32, signs stream, row int, ring []int32, windows func(row int) [8]uint32) {
	var words [32]uint32
	for ; len(w) > 0; row += 8 {
		part := w[:min(len(w), 8*rowEntries)]
		signs.fill(&words, row, (len(part)+rowEntries-1)/rowEntries)
		from := windows(row)
		addRows(part, &words, ring, &from)
		w = w[len(part):]
	}
}

// inParts has the machine's cores do work on parts of w, each of whole eights of rows. Entries do not depend on each other, so
// the result is the same for any number of cores.
func inParts(w []int32, work func(part []int32, row int)) {
	parts := min(runtime.GOMAXPROCS(0), len(w)/partLen)
	if parts < 2 {
		work(w, 0)
		return
	}
	rows := (len(w) + 8*rowEntries*parts - 1) / (8 * rowEntries * parts) * 8
	var wg sync.WaitGroup
	for row := 0; row*rowEntries < len(w); row += rows {
		part := w[row*rowEntries : min((row+rows)*rowEntries, len(w))]
		wg.Go(func() { work(part, row) })
	}
	wg.Wait()
}

// nearest returns x / 2^shift, rounded to the nearest integer, halves up.
func nearest(x int64, shift uint) int64 { return (x + 1<<shift>>1) >> shift }
