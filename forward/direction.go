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

// addTerms adds terms to w, the entries of a tensor in units of 2^(shift-24). Terms of one direction are added in one sweep.
func addTerms(w []int32, key uint64, tensor uint32, shift uint, terms []term) {
	for i, t := range terms {
		same := func(other term) bool { return other.step == t.step && other.direction == t.direction }
		if slices.ContainsFunc(terms[:i], same) {
			continue // went with the first
		}
		n := int64(0)
		for _, other := range terms[i:] {
			if same(other) {
				n += nearest(other.plus, shift) - nearest(other.minus, shift)
			}
		}
		if n != 0 {
			s := stream{keyOf(key), t.step, t.direction, tensor}
			inParts(w, func(part []int32, block int) { addSigns(part, s, block, int32(n)) })
		}
	}
}

// addSigns adds n or -n by random signs, the lowest bit of a random block first; w begins at that block.
func addSigns(w []int32, s stream, block int, n int32) {
	var words [32]uint32
	for ; len(w) >= 1024; block += 8 {
		s.fill(&words, block, 8)
		addWords((*[1024]int32)(w), &words, n)
		w = w[1024:]
	}
	if len(w) > 0 {
		s.fill(&words, block, (len(w)+blockEntries-1)/blockEntries)
		addWordsGo(w, &words, n)
	}
}

const (
	blockEntries = 128     // signs in a random block
	partLen      = 1 << 16 // a sweep uses one core for every so many entries
)

// inParts has the machine's cores do work on parts of w, each of whole random blocks. Entries do not depend on each other,
// so the result is the same for any number of cores.
func inParts(w []int32, work func(part []int32, block int)) {
	parts := min(runtime.GOMAXPROCS(0), len(w)/partLen)
	if parts < 2 {
		work(w, 0)
		return
	}
	blocks := (len(w)/parts + blockEntries - 1) / blockEntries
	var wg sync.WaitGroup
	for block := 0; block*blockEntries < len(w); block += blocks {
		part := w[block*blockEntries : min((block+blocks)*blockEntries, len(w))]
		wg.Go(func() { work(part, block) })
	}
	wg.Wait()
}

// nearest returns x / 2^shift, rounded to the nearest integer, halves up.
func nearest(x int64, shift uint) int64 { return (x + 1<<shift>>1) >> shift }
