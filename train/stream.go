package train

import "fmt"

// Source gives weights in pieces: Read fills dst with the elements of a parameter from one on. With it,
// weights that are held in another form, or elsewhere, need not exist as floats all at once.
type Source interface {
	Read(param, from int, dst []float32)
}

// StreamLosses is the mean cross-entropy of each of len(losses) equal parts of a batch, by weights that are read in
// tiles: dense layers and embeddings never hold more than the tile, other layers their own parameters. The bits
// depend on the tile's length, which must be at least the widest dense layer's and embedding's.
func (p *Pass) StreamLosses(src Source, tile []float32, b Batch, losses []float64) error {
	samples, err := p.net.check(b)
	if err == nil && (samples != p.samples || samples%len(losses) != 0) {
		err = fmt.Errorf("%w: a batch of %d samples in %d parts, in a pass for %d", ErrUsage, samples, len(losses), p.samples)
	}
	if err == nil && len(tile) < p.net.TileSize() {
		err = fmt.Errorf("%w: a tile of %d floats; the widest layer needs %d", ErrUsage, len(tile), p.net.TileSize())
	}
	if err != nil {
		return err
	}
	p.acts[0] = b.Inputs
	for i, l := range p.net.layers {
		x, y := p.acts[i], p.acts[i+1]
		switch layer := l.Layer.(type) {
		case nil:
			for j, v := range x {
				y[j] = v + p.acts[l.from][j]
			}
		case Dense:
			layer.stream(src, l.first, tile, x, y, p.samples)
		case Embedding:
			layer.stream(src, l.first, tile, x, y)
		default:
			l.Forward(p.streamed(src, i))
		}
	}
	rows := len(b.Targets) / len(losses)
	for k := range losses {
		logits := p.logits()[k*rows*p.net.classes:][:rows*p.net.classes]
		losses[k] = crossEntropy(logits, b.Targets[k*rows:][:rows], p.net.classes, 1/float64(rows), nil)
	}
	return nil
}

// TileSize is the shortest tile that StreamLosses can work with.
func (n *Network) TileSize() int {
	size := 1
	for _, l := range n.layers {
		switch layer := l.Layer.(type) {
		case Dense:
			size = max(size, layer.Out)
		case Embedding:
			size = max(size, layer.Size)
		}
	}
	return size
}

// streamed is work with a copy of the layer's parameters.
func (p *Pass) streamed(src Source, layer int) *Work {
	l := p.net.layers[layer]
	var w [][]float32
	for k, param := range p.net.params[l.first:][:l.count] {
		values := make([]float32, param.Len())
		src.Read(l.first+k, 0, values)
		w = append(w, values)
	}
	return &Work{N: p.samples, W: w, X: p.acts[layer], Y: p.acts[layer+1], Kept: p.kept[layer], Scratch: p.scratch}
}

// stream is Forward, some rows of W at a time.
func (d Dense) stream(src Source, param int, tile, x, y []float32, samples int) {
	rows := samples * d.Positions
	out := dense(y, rows, d.Out)
	for from := 0; from < d.In; {
		n := min(len(tile)/d.Out, d.In-from)
		src.Read(param, from*d.Out, tile[:n*d.Out])
		beta := float32(1)
		if from == 0 {
			beta = 0
		}
		multiply(no, matrix{x[from:], rows, n, d.In}, no, dense(tile[:n*d.Out], n, d.Out), out, 1, beta)
		from += n
	}
	src.Read(param+1, 0, tile[:d.Out])
	addRows(out, tile[:d.Out])
}

// stream is Forward, a row at a time.
func (e Embedding) stream(src Source, param int, tile, x, y []float32) {
	for i, token := range x {
		row := y[i*e.Size:][:e.Size]
		src.Read(param, int(token)*e.Size, row)
		src.Read(param+1, i%e.Positions*e.Size, tile[:e.Size])
		for j, v := range tile[:e.Size] {
			row[j] += v
		}
	}
}
