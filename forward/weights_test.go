package forward

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/layer"
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

// The unit has room for four times six deviations: the finest up to a deviation of 2.67, twice that up to 5.33.
func TestUnitOfInitialWeights(t *testing.T) {
	for std, shift := range map[float64]uint{2: 0, 2.6: 0, 2.7: 1, 5: 1, 6: 2} {
		net, err := train.NewNetwork(1, 2, train.Named{Name: "d", Layer: layer.Dense{Positions: 1, In: 40, Out: 2, Std: std}})
		if err != nil {
			t.Fatal(err)
		}
		if w := NewWeights(net, 1); w.shift[0] != shift || w.shift[1] != 0 {
			t.Errorf("deviation %v: units of 2^-24 shifted by %v, want [%d 0]", std, w.shift, shift)
		}
	}
}

// The error of a weight out of range has its value, in the tensor's own unit.
func TestOverflowNamesTheValue(t *testing.T) {
	w := &Weights{params: []train.Param{{Name: "a", Shape: []int{1}}, {Name: "b", Shape: []int{3}}}, data: [][]int32{{0}, {0, -limit, -limit - 1<<20}}, shift: []uint{0, 3}}
	if err := w.check(); !errors.Is(err, ErrOverflow) || !strings.Contains(err.Error(), ": b[2] is -512.5; lower") {
		t.Errorf("got %v", err)
	}
}

func TestFromValues(t *testing.T) {
	net, err := train.MLP(4, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	values, err := net.NewValues(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range values.Params {
		for j := range values.Params[i] {
			values.Params[i][j] = float32(j-2) * 0.37 * float32(math.Pow(40, float64(i)))
		}
	}
	w, err := FromValues(net, values)
	if err != nil {
		t.Fatal(err)
	}
	back, err := w.Values(net)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range values.Params {
		unit := math.Ldexp(1, int(w.shift[i])-24)
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
		if _, err := FromValues(net, values); good != (err == nil) {
			t.Errorf("%v: %v", x, err)
		}
	}
}

// An entry near the end of its range ends the run; one at the limit does not yet.
func TestCheck(t *testing.T) {
	for x, good := range map[int32]bool{0: true, 1 << 30: true, -1 << 30: true, 1<<30 + 1: false, -1<<30 - 1: false} {
		w := &Weights{params: []train.Param{{Name: "w", Shape: []int{2}}}, data: [][]int32{{0, x}}, shift: []uint{1}}
		if err := w.check(); good != (err == nil) || err != nil && !errors.Is(err, ErrOverflow) {
			t.Errorf("%d: %v", x, err)
		}
	}
}

// The hash tells weights apart by value, unit, name and shape; a clone has the same and goes its own way.
func TestHash(t *testing.T) {
	build := func(name string, shape []int, unit uint, last int32) *Weights {
		return &Weights{params: []train.Param{{Name: name, Shape: shape}}, data: [][]int32{{1, 2, 3, 4, 5, last}}, shift: []uint{unit}}
	}
	w := build("w", []int{2, 3}, 0, 6)
	seen := map[string]bool{w.Hash(): true}
	for _, other := range []*Weights{build("v", []int{2, 3}, 0, 6), build("w", []int{3, 2}, 0, 6), build("w", []int{2, 3}, 1, 6), build("w", []int{2, 3}, 0, 7)} {
		if seen[other.Hash()] {
			t.Errorf("%+v has a hash that others have", other)
		}
		seen[other.Hash()] = true
	}
	c := w.Clone()
	if c.Hash() != w.Hash() {
		t.Error("a clone has another hash")
	}
	c.data[0][0]++
	if c.Hash() == w.Hash() {
		t.Error("a clone shares its memory")
	}
	if len(w.Hash()) != 32 {
		t.Errorf("hash %s", w.Hash())
	}
}

// A processor refuses what cannot be: another rank, more steps than the run has, weights of later steps.
func TestProcessorRefuses(t *testing.T) {
	net, c := network3(t), testConfig(2, 1, 3)
	training, _ := digits(t)
	at := func(rank int) *Processor {
		return &Processor{Config: c, Rank: rank, Model: NewModel(net), Data: training, Weights: NewWeights(net, c.Key), Bus: NewMemory().Reader()}
	}
	if err := at(2).Run(t.Context()); !errors.Is(err, ErrConfig) {
		t.Errorf("a rank of none: %v", err)
	}
	commits := []Commit{{Increments: []int32{1}}, {Increments: []int32{2}}, {Increments: []int32{3}}, {Increments: []int32{4}}}
	if err := at(0).Begin(commits); !errors.Is(err, ErrConfig) {
		t.Errorf("more steps than the run has: %v", err)
	}
	if err := at(0).begin(commits[:2], 3); !errors.Is(err, ErrConfig) {
		t.Errorf("weights of later steps: %v", err)
	}
	p := at(0)
	if err := p.Begin(commits[:3]); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err != nil { // all steps are done
		t.Fatal(err)
	}
	w := NewWeights(net, c.Key)
	s := &state{config: c, w: w}
	for step, c := range commits[:3] {
		s.apply(uint32(step), c.Increments, nil)
	}
	if p.Weights.Hash() != w.Hash() {
		t.Error("the steps of a log give other weights")
	}
}
