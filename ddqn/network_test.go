package ddqn

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSpecValidate(t *testing.T) {
	if err := (Spec{Features: 1, Actions: 1, Objectives: 1}).validate(); err != nil {
		t.Error(err)
	}
	err := Spec{Features: 0, Actions: -1, Objectives: 1 << 20, Hidden: []int{8, 0}}.validate()
	for _, field := range []string{"spec.features", "spec.actions", "spec.objectives", "spec.hidden[1]"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not reported: %v", field, err)
		}
	}
	for name, s := range map[string]Spec{
		"too many layers":  {Features: 1, Actions: 1, Objectives: 1, Hidden: make([]int, 17)},
		"too many outputs": {Features: 1, Actions: 1 << 10, Objectives: 1 << 7},
		"too many weights": {Features: 1 << 16, Actions: 1, Objectives: 1, Hidden: []int{1 << 16}},
	} {
		if s.validate() == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := NewNetwork(s, rand.New(rand.NewPCG(1, 1))); err == nil {
			t.Errorf("%s: network was made", name)
		}
	}
}

func TestNetworkInitialisation(t *testing.T) {
	spec := Spec{Features: 50, Actions: 4, Objectives: 2, Hidden: []int{200, 100}}
	net := newNet(t, spec, 1)
	if !net.Equal(newNet(t, spec, 1)) || net.Equal(newNet(t, spec, 2)) {
		t.Error("the seed does not decide the weights")
	}
	for i, l := range net.layers[:2] {
		var square, most float64
		for _, w := range l.W {
			square += float64(w) * float64(w)
			most = math.Max(most, math.Abs(float64(w)))
		}
		variance, want := square/float64(len(l.W)), 2/float64(l.In)
		if math.Abs(variance/want-1) > 0.05 || most > math.Sqrt(3*want) {
			t.Errorf("layer %d: variance %v, largest %v, want %v, %v", i, variance, most, want, math.Sqrt(3*want))
		}
		for _, b := range l.B {
			if b != 0 {
				t.Errorf("layer %d: bias %v", i, b)
			}
		}
	}
}

func TestNetworkCopies(t *testing.T) {
	spec := Spec{Features: 2, Actions: 2, Objectives: 1, Hidden: []int{3}}
	a := newNet(t, spec, 1)
	c := a.Clone()
	c.weights[0]++
	if c.Equal(a) || a.weights[0] == c.weights[0] {
		t.Error("a clone shares weights")
	}
	if err := c.copyFrom(a); err != nil || !c.Equal(a) {
		t.Errorf("copy: %v", err)
	}
	spec.Hidden = []int{4}
	other := newNet(t, spec, 1)
	if err := a.copyFrom(other); !errors.Is(err, ErrMismatch) {
		t.Errorf("copy of another shape: %v", err)
	}
	if spec := a.Spec(); spec.Hidden[0] != 3 {
		t.Error("wrong spec")
	} else if spec.Hidden[0] = 9; a.Spec().Hidden[0] != 3 {
		t.Error("the spec can be changed from outside")
	}
}
