package train

import (
	"fmt"

	"evenkeel/train/layer"
)

// StreamLosses is the mean cross-entropy of each of len(losses) equal parts of a batch, by weights that are read in
// tiles: dense layers and embeddings never hold more than the tile, other layers their own parameters. The tile
// must be at least as long as the widest dense layer and embedding; the bits do not depend on it.
func (p *Pass) StreamLosses(src layer.Source, tile []float32, b Batch, losses []float64) error {
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
		switch streamer := l.Layer.(type) {
		case nil:
			for j, v := range x {
				y[j] = v + p.acts[l.from][j]
			}
		case layer.Streamer:
			streamer.Stream(src, l.first, tile, x, y, p.samples)
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
		if s, ok := l.Layer.(layer.Streamer); ok {
			size = max(size, s.Tile())
		}
	}
	return size
}

// streamed is a call with a copy of the layer's parameters.
func (p *Pass) streamed(src layer.Source, number int) *layer.Call {
	l := p.net.layers[number]
	var w [][]float32
	for k, param := range p.net.params[l.first:][:l.count] {
		values := make([]float32, param.Len())
		src.Read(l.first+k, 0, values)
		w = append(w, values)
	}
	return &layer.Call{N: p.samples, W: w, X: p.acts[number], Y: p.acts[number+1], Kept: p.kept[number], Scratch: p.scratch}
}
