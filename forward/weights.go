package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/evenkeel/evenkeel/train"
)

// ErrOverflow is returned where a weight grew beyond what fixed point holds.
var ErrOverflow = errors.New("forward: a weight left the range of fixed point")

// unitBits: weights are whole numbers of 2^-24, and of a coarser unit in tensors that begin with values beyond 16.
const unitBits = 24

// limit is how far an entry may go, of 2^31: what a step adds then still fits.
const limit = 1 << 30

// Weights are the parameters of a network in fixed point. Adding and subtracting is exact, so that what a step adds to
// try a direction is taken back without a trace, and updates give the same bits in any order.
type Weights struct {
	params []train.Param
	data   [][]int32
	shift  []uint // by how much the unit of a tensor is coarser than 2^-24
}

// NewWeights draws the weights to start from: normal with each parameter's mean and deviation.
func NewWeights(net *train.Network, key uint64) *Weights {
	w := &Weights{params: net.Params()}
	for i, p := range w.params {
		data, shift := make([]int32, p.Len()), shiftFor(math.Abs(p.Mean)+float64(6*p.Std))
		start := nearest(toUnits(p.Mean), shift)
		for j := range data {
			data[j] = int32(start)
		}
		Gaussian.add(data, key, uint32(i), shift, []term{{step: initialStep, plus: toUnits(p.Std)}})
		w.data, w.shift = append(w.data, data), append(w.shift, shift)
	}
	return w
}

// FromValues takes weights over that were trained otherwise, rounded to the unit. Units are chosen by the largest
// value of each tensor, so that there is room for sixteen times as much.
func FromValues(net *train.Network, v *train.Values) (*Weights, error) {
	w := &Weights{params: net.Params()}
	for i, p := range w.params {
		largest := 0.0
		for _, x := range v.Params[i] {
			if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 1<<20 {
				return nil, fmt.Errorf("forward: parameter %s holds %v; finite numbers up to 2^20 can be taken over", p.Name, x)
			}
			largest = max(largest, math.Abs(float64(x)))
		}
		data, shift := make([]int32, p.Len()), shiftFor(largest)
		for j, x := range v.Params[i] {
			data[j] = int32(nearest(toUnits(float64(x)), shift))
		}
		w.data, w.shift = append(w.data, data), append(w.shift, shift)
	}
	return w, nil
}

// shiftFor is the coarseness with room for four times the value below the limit.
func shiftFor(value float64) uint {
	shift := uint(0)
	for float64(int64(1)<<shift)*limit/(1<<unitBits) < 4*value {
		shift++
	}
	return shift
}

func toUnits(x float64) int64 { return int64(math.Round(x * (1 << unitBits))) }

// Clone is a copy.
func (w *Weights) Clone() *Weights {
	c := &Weights{params: w.params, shift: w.shift}
	for _, d := range w.data {
		c.data = append(c.data, append([]int32(nil), d...))
	}
	return c
}

// Len is the number of weights.
func (w *Weights) Len() int {
	n := 0
	for _, d := range w.data {
		n += len(d)
	}
	return n
}

// Read is train.Source's.
func (w *Weights) Read(param, from int, dst []float32) {
	floats(dst, w.data[param][from:], float32(math.Ldexp(1, int(w.shift[param])-unitBits)))
}

// Values are the weights as floats.
func (w *Weights) Values(net *train.Network) (*train.Values, error) {
	v, err := net.NewValues(nil)
	if err != nil {
		return nil, err
	}
	for i := range w.data {
		w.Read(i, 0, v.Params[i])
	}
	return v, nil
}

// add adds terms to all tensors.
func (w *Weights) add(kind Kind, key uint64, terms []term) {
	for i, d := range w.data {
		kind.add(d, key, uint32(i), w.shift[i], terms)
	}
}

// check returns ErrOverflow where an entry has come near the end of its range.
func (w *Weights) check() error {
	for i, d := range w.data {
		for j, x := range d {
			if x > limit || x < -limit {
				return fmt.Errorf("%w: %s[%d] is %.1f; lower the learning rate", ErrOverflow, w.params[i].Name, j, math.Ldexp(float64(x), int(w.shift[i])-unitBits))
			}
		}
	}
	return nil
}

// Hash is the xxh3-128 of names, shapes, units and entries, in hexadecimal.
func (w *Weights) Hash() string {
	h := xxh3.New()
	var b []byte
	for i, p := range w.params {
		b = append(b[:0], p.Name...)
		for _, n := range p.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		b = append(b, byte(w.shift[i]))
		_, _ = h.Write(b) // never fails
		for from := 0; from < len(w.data[i]); from += 4096 {
			b = b[:0]
			for _, x := range w.data[i][from:min(from+4096, len(w.data[i]))] {
				b = binary.LittleEndian.AppendUint32(b, uint32(x))
			}
			_, _ = h.Write(b)
		}
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}
