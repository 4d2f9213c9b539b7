package forward

// The inner loops of a sweep over the weights run eight lanes at a time where the processor has AVX2 (simd_amd64.s), or
// else in portable Go, which takes about three times as long. Both give the same bits.

// fillGo is fill in portable Go.
func (s stream) fillGo(words *[32]uint32, block, need int) {
	for i := range need {
		*(*[4]uint32)(words[4*i:]) = s.block(block + i)
	}
}

// addRowsGo is addRows in portable Go.
func addRowsGo(w []int32, words *[32]uint32, ring []int32, from *[8]uint32) {
	for i := 0; len(w) > 0; i++ {
		word, window := words[i], ring[from[i/4]:][i%4*32:][:32:32]
		if len(w) < 32 {
			for k := range w {
				w[k] += signed(window[k], word>>k)
			}
			return
		}
		part := w[:32:32]
		for k := 0; k < 32; k += 4 { // four at a time: faster
			part[k] += signed(window[k], word)
			part[k+1] += signed(window[k+1], word>>1)
			part[k+2] += signed(window[k+2], word>>2)
			part[k+3] += signed(window[k+3], word>>3)
			word >>= 4
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
