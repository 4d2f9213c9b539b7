//go:build !amd64

package forward

func (s stream) fill(words *[32]uint32, block, need int) { s.fillGo(words, block, need) }

func addWords(w *[1024]int32, words *[32]uint32, n int32) { addWordsGo(w[:], words, n) }

func floats(dst []float32, src []int32, unit float32) { floatsGo(dst, src, unit) }
