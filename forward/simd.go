package forward

// What a sweep over the weights spends its time on, eight lanes at a time where the processor has AVX2
// (simd_amd64.s), or in portable Go, which takes about three times as long. Both give the same bits.

// fillGo is fill.
func (s stream) fillGo(words *[32]uint32, block, need int) {
	for i := range need {
		*(*[4]uint32)(words[4*i:]) = s.block(block + i)
	}
}

// addWordsGo is addWords, for up to 1024 entries.
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

// signed is n, or -n where the lowest bit is set.
func signed(n int32, bits uint32) int32 {
	sign := -int32(bits & 1) // 0 or all ones: (n ^ -1) + 1 is -n
	return (n ^ sign) - sign
}

// normalsGo is normals.
func normalsGo(z *[64]int32, words *[32]uint32) {
	table := quantiles()
	for i, word := range words {
		z[2*i], z[2*i+1] = int32(table[word&0xFFFF]), int32(table[word>>16])
	}
}

// addScaledGo is addScaled.
func addScaledGo(w, z []int32, amount int64, shift uint, sign int32) {
	half := int64(1) << (shift - 1)
	shift &= 63
	z = z[:len(w)]
	for i := range w {
		w[i] += sign * int32((amount*int64(z[i])+half)>>shift)
	}
}

// floatsGo is floats.
func floatsGo(dst []float32, src []int32, unit float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = float32(x) * unit
	}
}
