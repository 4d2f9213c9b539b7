package forward

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/train"
	"evenkeel/train/layer"
)

// Values of another training fit with room for sixteen times as much, in the finest unit that has it.
func TestUnits(t *testing.T) {
	for _, value := range []float64{0, 0.1, 15.9, 16, 16.01, 31, 33, 1000, 1 << 20} {
		shift := shiftFor(value)
		unit := math.Ldexp(1, int(shift)-24)
		if room := unit * (1 << 30); room < 4*value {
			t.Errorf("%v: room up to %v", value, room)
		}
		if shift > 0 && unit/2*(1<<30) >= 4*value {
			t.Errorf("%v: a unit of 2^%d would do", value, int(shift)-25)
		}
	}
	if shiftFor(16) != 0 || shiftFor(16.001) != 1 {
		t.Errorf("16 has shift %d, a little more %d", shiftFor(16), shiftFor(16.001))
	}
}

// The unit has room for four times two deviations: the finest up to a deviation of 8, twice that up to 16.
func TestUnitOfInitialWeights(t *testing.T) {
	for std, shift := range map[float64]uint{2: 0, 7.9: 0, 8.1: 1, 15: 1, 17: 2} {
		net, err := train.NewNetwork(1, 2, train.Named{Name: "d", Layer: layer.Dense{Positions: 1, In: 40, Out: 2, Std: std}})
		if err != nil {
			t.Fatal(err)
		}
		if w := NewWeights(net, 1); w.tensors[0].Shift != shift || w.tensors[1].Shift != 0 {
			t.Errorf("deviation %v: units of 2^-24 shifted by %d, want %d", std, w.tensors[0].Shift, shift)
		}
	}
}

// The error of a weight out of range has its value, in the tensor's own unit.
func TestOverflowNamesTheValue(t *testing.T) {
	w := &Weights{tensors: []Tensor{{Name: "a", Shape: []int{1}}, {Name: "b", Shape: []int{3}, Shift: 3}}, data: [][]int32{{0}, {0, -limit, -limit - 1<<20}}}
	if err := w.check(); !errors.Is(err, ErrOverflow) || !strings.Contains(err.Error(), ": b[2] is -512.5; lower") {
		t.Errorf("got %v", err)
	}
}

func TestFromFloats(t *testing.T) {
	net, err := train.MLP(4, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	values := net.NewValues()
	var tensors []Tensor
	for _, p := range net.Params() {
		tensors = append(tensors, Tensor{Name: p.Name, Shape: p.Shape})
	}
	for i := range values.Params {
		for j := range values.Params[i] {
			values.Params[i][j] = float32(j-2) * 0.37 * float32(math.Pow(40, float64(i)))
		}
	}
	w, err := FromFloats(tensors, values.Params)
	if err != nil {
		t.Fatal(err)
	}
	back := w.Values(net)
	n := 0
	for i := range values.Params {
		unit := math.Ldexp(1, int(w.tensors[i].Shift)-24)
		for j, x := range values.Params[i] {
			if d := math.Abs(float64(back.Params[i][j]) - float64(x)); d > unit/2+1e-7*math.Abs(float64(x)) {
				t.Errorf("parameter %d[%d] is %v, was %v", i, j, back.Params[i][j], x)
			}
			n++
		}
	}
	if w.Len() != n {
		t.Errorf("%d weights, want %d", w.Len(), n)
	}
	for x, good := range map[float64]bool{1 << 20: true, -(1 << 20): true, 1<<20 + 1: false, -(1<<20 + 1): false, math.NaN(): false, math.Inf(1): false} {
		values.Params[0][0] = float32(x)
		if _, err := FromFloats(tensors, values.Params); good != (err == nil) {
			t.Errorf("%v: %v", x, err)
		}
	}
}

// An entry near the end of its range ends the run; one at the limit does not yet.
func TestCheck(t *testing.T) {
	for x, good := range map[int32]bool{0: true, 1 << 30: true, -1 << 30: true, 1<<30 + 1: false, -1<<30 - 1: false} {
		w := &Weights{tensors: []Tensor{{Name: "w", Shape: []int{2}, Shift: 1}}, data: [][]int32{{0, x}}}
		if err := w.check(); good != (err == nil) || err != nil && !errors.Is(err, ErrOverflow) {
			t.Errorf("%d: %v", x, err)
		}
	}
}

// The hash is SHA-256 of the entries as little-endian numbers of 32 bits, one tensor after the other (by hand: sha256sum); a clone has the same and goes
// its own way.
func TestHash(t *testing.T) {
	w := &Weights{tensors: []Tensor{{Name: "w", Shape: []int{2}}, {Name: "v", Shape: []int{1}}}, data: [][]int32{{1, -2}, {3}}}
	// printf '\x01\0\0\0\xfe\xff\xff\xff\x03\0\0\0' | sha256sum
	if got, want := w.Hash(), "66d9f6ea4448712f79044d7fea826fbd59b1447689ef6ca1c7f71c785f0e25e0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// printf '\x03\0\0\0' | sha256sum
	if got, want := w.manifest()[1].Hash, "9d9f290527a6be626a8f5985b26e19b237b44872b03631811df4416fc1713178"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c := w.Clone()
	if c.Hash() != w.Hash() {
		t.Error("a clone has another hash")
	}
	c.data[0][0]++
	if c.Hash() == w.Hash() {
		t.Error("a clone shares its memory")
	}
}
