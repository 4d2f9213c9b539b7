package forward

import "golang.org/x/sys/cpu"

// hasAVX2 is a variable so that the tests can compare both paths.
var hasAVX2 = cpu.X86.HasAVX2

//go:noescape
func philox8AVX2(words *[32]uint32, counter *[4]uint32, key *[2]uint32)

//go:noescape
func addRowsAVX2(w *int32, words *[32]uint32, ring *int32, from *[8]uint32)

//go:noescape
func floatsAVX2(dst *float32, src *int32, unit float32, eights int)

// fill sets words to the random words of eight blocks, of which the caller needs only the first ones.
func (s stream) fill(words *[32]uint32, block, need int) {
	if !hasAVX2 || need < 2 {
		s.fillGo(words, block, need)
		return
	}
	philox8AVX2(words, &[4]uint32{uint32(block), s.tensor, s.direction, s.step}, &s.key)
}

// addRows adds to up to eight rows of w a window of ring each, from where from says: an entry of it where the entry's bit in words
// is 0, or else its opposite.
func addRows(w []int32, words *[32]uint32, ring []int32, from *[8]uint32) {
	if !hasAVX2 || len(w) < 8*rowEntries {
		addRowsGo(w, words, ring, from)
		return
	}
	addRowsAVX2(&w[0], words, &ring[0], from)
}

// floats sets dst to src times unit.
func floats(dst []float32, src []int32, unit float32) {
	src = src[:len(dst)]
	eights := 0
	if hasAVX2 {
		if eights = len(dst) / 8; eights > 0 {
			floatsAVX2(&dst[0], &src[0], unit, eights)
		}
	}
	floatsGo(dst[8*eights:], src[8*eights:], unit)
}
