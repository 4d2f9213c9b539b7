package forward

// The inner loops of a sweep over the weights run eight lanes at a time where the processor has AVX2 (simd_amd64.s), or
// else in portable Go, which takes about three times as long. Both give the same bits.

// fillGo is fill in portable Go.
func (s stream) fillGo(words *[32]uint32, block, need int) {
	for i := range need {
		*(*[4]uint32)(words[4*i:]) = s.block(block + i)
	}
}

// addWordsGo is addWords in portable Go, for up to 1024 entries.
func addWordsGo(w []int32, words *[32]uint32, n int32) {
	for _, word := range words {
		if len(w) < 32 {
			for i := range w {
				w[i] += signed(n, word>>i)
			}
			return
		}
		part := w[:32:32]
		for i := 0; i < 32; i += 8 { // eight at a time: twice as fast
			part[i] += signed(n, word)
			part[i+1] += signed(n, word>>1)
			part[i+2] += signed(n, word>>2)
			part[i+3] += signed(n, word>>3)
			part[i+4] += signed(n, word>>4)
			part[i+5] += signed(n, word>>5)
			part[i+6] += signed(n, word>>6)
			part[i+7] += signed(n, word>>7)
			word >>= 8
		}
		w = w[32:]
	}
}

// signed returns n, or -n where the lowest bit is set.
func signed(n int32, bits uint32) int32 {
	sign := -int32(bits & 1) // 0 or all ones: (n ^ -1) + 1 is -n
	return (n ^ sign) - sign
}

// floatsGo is floats in portable Go.
func floatsGo(dst []float32, src []int32, unit float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = float32(x) * unit
	}
}
