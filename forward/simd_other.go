//go:build !amd64

package forward

func (s stream) fill(words *[32]uint32, block, need int) { s.fillGo(words, block, need) }

func addWords(w *[1024]int32, words *[32]uint32, n int32) { addWordsGo(w[:], words, n) }

func normals(z *[64]int32, words *[32]uint32) { normalsGo(z, words) }

func addScaled(w []int32, z *[64]int32, amount int64, shift uint, sign int32) {
	addScaledGo(w, z[:], amount, shift, sign)
}

func floats(dst []float32, src []int32, unit float32) { floatsGo(dst, src, unit) }
