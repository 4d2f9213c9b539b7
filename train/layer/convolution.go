package layer

import (
	"math"

	"evenkeel/internal/matrix"
)

// Convolution slides a Kernel x Kernel window over images of Height x Width x In floats (channels last), a Stride
// apart, with zeros around them: (Height-1)/Stride+1 rows out, columns likewise. Kernel is odd. Windows are laid out
// as the rows of a matrix, one image at a time, so that the work is a matrix product.
type Convolution struct {
	Height, Width, In, Out int
	Kernel, Stride         int
}

func (c Convolution) rows() int { return (c.Height-1)/c.Stride + 1 }
func (c Convolution) cols() int { return (c.Width-1)/c.Stride + 1 }

// Image is the height and width of the images that come out.
func (c Convolution) Image() (height, width int) { return c.rows(), c.cols() }

func (c Convolution) depth() int { return c.Kernel * c.Kernel * c.In }

// Params are weight, a window's floats x out, and bias.
func (c Convolution) Params() []Param {
	return []Param{
		{Name: "weight", Shape: []int{c.Kernel, c.Kernel, c.In, c.Out}, Std: math.Sqrt(2 / float64(c.depth()))},
		{Name: "bias", Shape: []int{c.Out}},
	}
}

// Sizes is Layer's.
func (c Convolution) Sizes() (in, out int) {
	return c.Height * c.Width * c.In, c.rows() * c.cols() * c.Out
}

// Memory is Layer's: the windows of one image.
func (c Convolution) Memory(int) (kept, scratch int) { return 0, c.rows() * c.cols() * c.depth() }

// Forward is Layer's.
func (c Convolution) Forward(w *Call) {
	in, out := c.Sizes()
	windows := matrix.Of(w.Scratch, c.rows()*c.cols(), c.depth())
	for s := range w.N {
		c.spread(windows.Data, w.X[s*in:][:in])
		y := matrix.Of(w.Y[s*out:][:out], windows.Rows, c.Out)
		multiply(y, windows, matrix.Of(w.W[0], c.depth(), c.Out))
		addRows(y, w.W[1])
	}
}

// Backward is Layer's.
func (c Convolution) Backward(w *Call) {
	in, out := c.Sizes()
	windows := matrix.Of(w.Scratch, c.rows()*c.cols(), c.depth())
	weight, dweight := matrix.Of(w.W[0], c.depth(), c.Out), matrix.Of(w.DW[0], c.depth(), c.Out)
	clear(dweight.Data)
	sumRows(w.DW[1], matrix.Of(w.DY, w.N*windows.Rows, c.Out))
	for s := range w.N {
		dy := matrix.Of(w.DY[s*out:][:out], windows.Rows, c.Out)
		c.spread(windows.Data, w.X[s*in:][:in])
		multiplyAdd(dweight, windows.T(), dy)
		if w.DX != nil {
			multiply(windows, dy, weight.T())
			c.gather(w.DX[s*in:][:in], windows.Data)
		}
	}
}

// each calls do with the place of every row of a window in the windows and in the image; image is -1 outside of it.
func (c Convolution) each(do func(window, image int)) {
	window := 0
	for r := range c.rows() {
		for q := range c.cols() {
			for i := range c.Kernel {
				for j := range c.Kernel {
					y, x := r*c.Stride+i-c.Kernel/2, q*c.Stride+j-c.Kernel/2
					image := -1
					if y >= 0 && y < c.Height && x >= 0 && x < c.Width {
						image = (y*c.Width + x) * c.In
					}
					do(window, image)
					window += c.In
				}
			}
		}
	}
}

// spread lays the windows of an image out.
func (c Convolution) spread(windows, image []float32) {
	c.each(func(window, at int) {
		if at < 0 {
			clear(windows[window:][:c.In])
		} else {
			copy(windows[window:][:c.In], image[at:])
		}
	})
}

// gather sums windows into the image that they are of.
func (c Convolution) gather(image, windows []float32) {
	clear(image)
	c.each(func(window, at int) {
		if at < 0 {
			return
		}
		for k, v := range windows[window:][:c.In] {
			image[at+k] += v
		}
	})
}
