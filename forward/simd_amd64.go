package forward

import "golang.org/x/sys/cpu"

// hasAVX2 is a variable so that the tests can compare both paths.
var hasAVX2 = cpu.X86.HasAVX2

//go:noescape
func philox8AVX2(words *[32]uint32, counter *[4]uint32, key *[2]uint32)

//go:noescape
func addWordsAVX2(w *int32, words *[32]uint32, n int32)

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

// addWords adds n to each entry of w whose bit in words is 0, and subtracts it from the others.
func addWords(w *[1024]int32, words *[32]uint32, n int32) {
	if !hasAVX2 {
		addWordsGo(w[:], words, n)
		return
	}
	addWordsAVX2(&w[0], words, n)
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
