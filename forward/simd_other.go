//go:build !amd64

package forward

func (s stream) fill(words *[32]uint32, block, need int) { s.fillGo(words, block, need) }

func addRows(w []int32, words *[32]uint32, ring []int32, from *[8]uint32) {
	addRowsGo(w, words, ring, from)
}

func floats(dst []float32, src []int32, unit float32) { floatsGo(dst, src, unit) }
