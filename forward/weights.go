package forward

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"

	"evenkeel/train"
)

// ErrOverflow is returned when a weight leaves the range of fixed point.
var ErrOverflow = errors.New("forward: a weight left the range of fixed point")

// unitBits is 24: weights are integers in units of 2^-24, or of a coarser unit in tensors that begin with values beyond 16.
const unitBits = 24

// limit bounds the magnitude of an entry, so that the next steps still fit into 32 bits.
const limit = 1 << 30

// Weights are the parameters of a network in fixed point. Addition is exact, so a trial is taken back without a trace, and
// updates give the same bits in any order.
type Weights struct {
	tensors []Tensor // without hashes
	data    [][]int32
}

// NewWeights draws first weights from a key: uniform, with each parameter's mean and standard deviation.
func NewWeights(net *train.Network, key uint64) *Weights {
	var tensors []Tensor
	for _, p := range net.Params() {
		tensors = append(tensors, Tensor{Name: p.Name, Shape: p.Shape, Shift: shiftFor(math.Abs(p.Mean) + float64(2*p.Std)), Mean: p.Mean, Std: p.Std})
	}
	return drawn(tensors, key)
}

func drawn(tensors []Tensor, key uint64) *Weights {
	w := &Weights{}
	for i, t := range tensors {
		data := slices.Repeat([]int32{int32(nearest(toUnits(t.Mean), t.Shift))}, t.len())
		addUniform(data, stream{key: keyOf(key), step: initialStep, tensor: uint32(i)}, toUnits(t.Std*math.Sqrt(3)), t.Shift)
		t.Hash = ""
		w.tensors, w.data = append(w.tensors, t), append(w.data, data)
	}
	return w
}

// addUniform adds uniform numbers within an amount, in units of 2^-24, to w, the entries of a tensor. A random word gives two.
func addUniform(w []int32, s stream, amount int64, shift uint) {
	for i := range w {
		v := s.block(i / 8)[i/2%4] >> (i % 2 * 16) & 0xFFFF
		w[i] += int32(nearest(amount*(2*int64(v)-0xFFFF), shift+16))
	}
}

// Drawn returns the weights that a run begins with, if they follow from its key.
func (h *Header) Drawn() (*Weights, error) {
	if h.Initial != FromKey {
		return nil, fmt.Errorf("%w: the run began with the weights of a file; name that file", ErrWeights)
	}
	w := drawn(h.Tensors, h.Config.Key)
	return w, h.Check(w)
}

// FromFloats returns weights with the given values, rounded to the tensor's unit. The unit is the finest that leaves room for
// four times the tensor's largest value. Only names and shapes of tensors are used.
func FromFloats(tensors []Tensor, values [][]float32) (*Weights, error) {
	w := &Weights{}
	for i, t := range tensors {
		if len(values[i]) != t.len() {
			return nil, fmt.Errorf("%w: tensor %s has %d values for shape %v", ErrWeights, t.Name, len(values[i]), t.Shape)
		}
		largest := 0.0
		for _, x := range values[i] {
			if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 1<<20 {
				return nil, fmt.Errorf("%w: tensor %s holds %v; finite, at most 2^20 in magnitude", ErrWeights, t.Name, x)
			}
			largest = max(largest, math.Abs(float64(x)))
		}
		t := Tensor{Name: t.Name, Shape: t.Shape, Shift: shiftFor(largest)}
		data := make([]int32, len(values[i]))
		for j, x := range values[i] {
			data[j] = int32(nearest(toUnits(float64(x)), t.Shift))
		}
		w.tensors, w.data = append(w.tensors, t), append(w.data, data)
	}
	return w, nil
}

// manifest returns the tensors with the hashes of their entries.
func (w *Weights) manifest() []Tensor {
	all := slices.Clone(w.tensors)
	for i := range all {
		h := sha256.New()
		hashEntries(h, w.data[i])
		all[i].Hash = hex.EncodeToString(h.Sum(nil))
	}
	return all
}

// shiftFor returns the shift of the finest unit with room for four times the value below the limit.
func shiftFor(value float64) uint {
	shift := uint(0)
	for float64(int64(1)<<shift)*limit/(1<<unitBits) < 4*value {
		shift++
	}
	return shift
}

func toUnits(x float64) int64 { return int64(math.RoundToEven(x * (1 << unitBits))) }

// Clone returns a copy.
func (w *Weights) Clone() *Weights {
	c := &Weights{tensors: w.tensors}
	for _, d := range w.data {
		c.data = append(c.data, slices.Clone(d))
	}
	return c
}

// Len returns the number of weights.
func (w *Weights) Len() int {
	n := 0
	for _, d := range w.data {
		n += len(d)
	}
	return n
}

// Read implements train.Source.
func (w *Weights) Read(param, from int, dst []float32) {
	floats(dst, w.data[param][from:], float32(math.Ldexp(1, int(w.tensors[param].Shift)-unitBits)))
}

// Values returns the weights as floats.
func (w *Weights) Values(net *train.Network) *train.Values {
	v := net.NewValues()
	for i := range w.data {
		w.Read(i, 0, v.Params[i])
	}
	return v
}

// add adds terms to all tensors.
func (w *Weights) add(key uint64, terms []term) {
	rings, entries := map[uint][]*ring{}, ringEntries(w.Len()) // by shift
	for i, d := range w.data {
		shift := w.tensors[i].Shift
		if _, made := rings[shift]; !made {
			rings[shift] = newRings(key, shift, entries, terms)
		}
		for _, r := range rings[shift] {
			r.add(d, uint32(i))
		}
	}
}

// check returns ErrOverflow if an entry is beyond the limit.
func (w *Weights) check() error {
	for i, d := range w.data {
		for j, x := range d {
			if x > limit || x < -limit {
				return fmt.Errorf("%w: %s[%d] is %.1f; lower the learning rate", ErrOverflow, w.tensors[i].Name, j, math.Ldexp(float64(x), int(w.tensors[i].Shift)-unitBits))
			}
		}
	}
	return nil
}

// Hash returns the SHA-256 of all entries, in hexadecimal.
func (w *Weights) Hash() string { return hex.EncodeToString(w.sum()) }

func (w *Weights) sum() []byte {
	h := sha256.New()
	for _, d := range w.data {
		hashEntries(h, d)
	}
	return h.Sum(nil)
}

func hashEntries(h hash.Hash, entries []int32) {
	var b [4 * 1024]byte
	for len(entries) > 0 {
		part := entries[:min(len(entries), 1024)]
		for i, x := range part {
			binary.LittleEndian.PutUint32(b[4*i:], uint32(x))
		}
		h.Write(b[:4*len(part)]) // never fails
		entries = entries[len(part):]
	}
}

// Float32 calls each with every tensor and its values.
func (w *Weights) Float32(each func(t Tensor, values []float32) error) error {
	for i, t := range w.tensors {
		values := make([]float32, len(w.data[i]))
		w.Read(i, 0, values)
		if err := each(t, values); err != nil {
			return err
		}
	}
	return nil
}
