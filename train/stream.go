package train

import (
	"fmt"
	"runtime"
	"sync"
)

// Source gives weights in pieces: Read fills dst with the elements of a parameter from one on. With it,
// weights that are held in another form, or elsewhere, need not exist as floats all at once. Several goroutines may call it.
type Source interface {
	Read(param, from int, dst []float32)
}

// StreamLosses is the mean cross-entropy of each of len(losses) equal parts of a batch, by weights that are read in
// tiles: dense layers and embeddings never hold more than the tile, other layers their own parameters. The tile
// must be at least as long as the widest dense layer and embedding; the bits do not depend on it.
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

const (
	streamCols = 192     // columns of W in a tile: so few that gonum's multiply starts no goroutines of its own
	streamWork = 1 << 18 // multiplications for which a goroutine is worth it
	streamTile = 1 << 11 // floats of a tile for which one is
)

// stream is Forward, a tile of W at a time. Goroutines take their share of the columns and of the tile; every element is
// summed from the first row of W to the last, however it is shared.
func (d Dense) stream(src Source, param int, tile, x, y []float32, samples int) {
	rows := samples * d.Positions
	cols := min(streamCols, d.Out)
	workers := max(min(runtime.GOMAXPROCS(0), (d.Out+cols-1)/cols, rows*d.In*d.Out/streamWork, len(tile)/streamTile), 1)
	part := len(tile) / workers
	var wg sync.WaitGroup
	for worker := range workers {
		share := func() {
			for from := worker * cols; from < d.Out; from += workers * cols {
				d.streamColumns(src, param, tile[worker*part:][:part], matrix{x, rows, d.In, d.In}, matrix{y[from:], rows, min(cols, d.Out-from), d.Out}, from)
			}
		}
		if worker < workers-1 {
			wg.Go(share)
		} else {
			share()
		}
	}
	wg.Wait()
	src.Read(param+1, 0, tile[:d.Out])
	addRows(dense(y, rows, d.Out), tile[:d.Out])
}

// streamColumns computes the columns of x W that begin with one.
func (d Dense) streamColumns(src Source, param int, tile []float32, x, y matrix, column int) {
	beta := float32(0)
	for from := 0; from < d.In; beta = 1 {
		n := min(len(tile)/y.cols, d.In-from)
		for i := range n {
			src.Read(param, (from+i)*d.Out+column, tile[i*y.cols:][:y.cols])
		}
		multiply(no, matrix{x.data[from:], x.rows, n, x.stride}, no, dense(tile[:n*y.cols], n, y.cols), y, 1, beta)
		from += n
	}
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
