package layer

import (
	"runtime"
	"sync"

	"evenkeel/internal/matrix"
)

// Source gives weights in pieces: Read fills dst with the elements of a parameter from one on. With it,
// weights that are held in another form, or elsewhere, need not exist as floats all at once. Several goroutines may call it.
type Source interface {
	Read(param, from int, dst []float32)
}

// Streamer is a layer that computes Forward while it reads its weights in tiles.
type Streamer interface {
	Layer
	// Tile is the shortest tile that it can work with, in floats.
	Tile() int
	// Stream sets y from x and its parameters, of which the first is number first in the source. The bits are those of
	// Forward, whatever the length of the tile, which it may overwrite.
	Stream(src Source, first int, tile, x, y []float32, samples int)
}

const (
	streamCols = 192     // columns of W in a tile
	streamWork = 1 << 18 // multiplications for which a goroutine is worth it
	streamTile = 1 << 11 // floats of a tile for which one is
)

// Tile is Streamer's: a row of W.
func (d Dense) Tile() int { return d.Out }

// Stream is Streamer's. Goroutines take their share of the columns and of the tile; every element is summed from the
// first row of W to the last, however it is shared.
func (d Dense) Stream(src Source, first int, tile, x, y []float32, samples int) {
	rows := samples * d.Positions
	cols := min(streamCols, d.Out)
	workers := max(min(runtime.GOMAXPROCS(0), (d.Out+cols-1)/cols, rows*d.In*d.Out/streamWork, len(tile)/streamTile), 1)
	part := len(tile) / workers
	var wg sync.WaitGroup
	for worker := range workers {
		share := func() {
			for from := worker * cols; from < d.Out; from += workers * cols {
				columns := matrix.Matrix{Data: y[from:], Rows: rows, Cols: min(cols, d.Out-from), RowStep: d.Out, ColStep: 1}
				d.streamColumns(src, first, tile[worker*part:][:part], matrix.Of(x, rows, d.In), columns, from)
			}
		}
		if worker < workers-1 {
			wg.Go(share)
		} else {
			share()
		}
	}
	wg.Wait()
	src.Read(first+1, 0, tile[:d.Out])
	addRows(matrix.Of(y, rows, d.Out), tile[:d.Out])
}

// streamColumns computes the columns of x W that begin with one.
func (d Dense) streamColumns(src Source, param int, tile []float32, x, y matrix.Matrix, column int) {
	s := scratches.Get().(*matrix.Scratch)
	defer scratches.Put(s)
	product := matrix.Multiply
	for from := 0; from < d.In; product = matrix.MultiplyAdd {
		n := min(len(tile)/y.Cols, d.In-from)
		for i := range n {
			src.Read(param, (from+i)*d.Out+column, tile[i*y.Cols:][:y.Cols])
		}
		part := matrix.Matrix{Data: x.Data[from:], Rows: x.Rows, Cols: n, RowStep: x.RowStep, ColStep: 1}
		product(y, part, matrix.Of(tile, n, y.Cols), s)
		from += n
	}
}

// Tile is Streamer's: an embedding.
func (e Embedding) Tile() int { return e.Size }

// Stream is Streamer's, a token at a time.
func (e Embedding) Stream(src Source, first int, tile, x, y []float32, _ int) {
	for i, token := range x {
		row := y[i*e.Size:][:e.Size]
		src.Read(first, int(token)*e.Size, row)
		src.Read(first+1, i%e.Positions*e.Size, tile[:e.Size])
		for j, v := range tile[:e.Size] {
			row[j] += v
		}
	}
}
