package forward

import "golang.org/x/sys/cpu"

// hasAVX2 is a variable so that the tests can compare both paths.
var hasAVX2 = cpu.X86.HasAVX2

//go:noescape
func philox8AVX2(words *[32]uint32, counter *[4]uint32, key *[2]uint32)

//go:noescape
func addWordsAVX2(w *int32, words *[32]uint32, n int32)

//go:noescape
func normalsAVX2(z *[64]int32, words *[32]uint32, table *[1<<16 + 1]int16)

//go:noescape
func addScaledAVX2(w, z *int32, amount int32, shift uint64, sign int32, eights int)

//go:noescape
func floatsAVX2(dst *float32, src *int32, unit float32, eights int)

// fill sets words to the random words of blocks from one on; no more than need of them matter.
func (s stream) fill(words *[32]uint32, block, need int) {
	if !hasAVX2 || need < 2 {
		s.fillGo(words, block, need)
		return
	}
	philox8AVX2(words, &[4]uint32{uint32(block), s.tensor, s.direction, s.step}, &s.key)
}

// addWords adds n to the entries of w, or takes it off where a word's bit is set.
func addWords(w *[1024]int32, words *[32]uint32, n int32) {
	if !hasAVX2 {
		addWordsGo(w[:], words, n)
		return
	}
	addWordsAVX2(&w[0], words, n)
}

// normals sets z to the normal numbers that words stand for.
func normals(z *[64]int32, words *[32]uint32) {
	if !hasAVX2 {
		normalsGo(z, words)
		return
	}
	normalsAVX2(z, words, quantiles())
}

// addScaled adds amount times z to w, rounded to units of 2^shift, or takes it off where sign is -1.
func addScaled(w []int32, z *[64]int32, amount int64, shift uint, sign int32) {
	eights := 0
	if hasAVX2 && shift <= 32 && int64(int32(amount)) == amount {
		if eights = len(w) / 8; eights > 0 {
			addScaledAVX2(&w[0], &z[0], int32(amount), uint64(shift), (sign-1)/2, eights)
		}
	}
	addScaledGo(w[8*eights:], z[8*eights:], amount, shift, sign)
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
