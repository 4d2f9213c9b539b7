package ddqn

import (
	"errors"
	"fmt"
	"slices"
)

// The limits keep a damaged or hostile file from asking for absurd amounts of memory.
const (
	maxWidth      = 1 << 16 // features, outputs of one layer
	maxLayers     = 16
	maxParameters = 1 << 24 // 64 MiB of float32
)

// Spec is the shape of a network. It has no defaults: every field but Hidden must be positive.
type Spec struct {
	// Features is the number of inputs of a row, 1 to 65,536.
	Features int `json:"features"`
	// Actions is the number of discrete actions of a row; Actions x Objectives at most 65,536.
	Actions int `json:"actions"`
	// Objectives is the length of the reward vector, 1 for an ordinary DQN.
	Objectives int `json:"objectives"`
	// Hidden holds the widths of the Dense-ReLU layers, at most 16 of them, from the input on. Empty means that
	// the heads see the features directly (a linear Q).
	Hidden []int `json:"hidden"`
}

// validate reports everything that is wrong with the spec at once, or nil.
func (s Spec) validate() error {
	var errs []error
	check := func(name string, v int) {
		if v < 1 || v > maxWidth {
			errs = append(errs, fmt.Errorf("spec.%s is %d, must be between 1 and %d", name, v, maxWidth))
		}
	}
	check("features", s.Features)
	check("actions", s.Actions)
	check("objectives", s.Objectives)
	for i, h := range s.Hidden {
		check(fmt.Sprintf("hidden[%d]", i), h)
	}
	if len(s.Hidden) > maxLayers {
		errs = append(errs, fmt.Errorf("spec.hidden has %d layers, at most %d are supported", len(s.Hidden), maxLayers))
	}
	if len(errs) == 0 {
		if out := s.outputs(); out > maxWidth {
			errs = append(errs, fmt.Errorf("spec.actions x spec.objectives is %d, must be at most %d", out, maxWidth))
		} else if n := s.parameters(); n > maxParameters {
			errs = append(errs, fmt.Errorf("spec asks for %d weights, at most %d are supported: use smaller layers", n, maxParameters))
		}
	}
	return errors.Join(errs...)
}

// outputs is the number of Q-values of a row.
func (s Spec) outputs() int { return s.Actions * s.Objectives }

// headWidth is the number of outputs of the joint head: V[R] and then A[Actions x R].
func (s Spec) headWidth() int { return s.Objectives + s.outputs() }

// widths are the layer boundaries: features, hidden..., joint head.
func (s Spec) widths() []int {
	return append(append([]int{s.Features}, s.Hidden...), s.headWidth())
}

func (s Spec) parameters() int {
	n, w := 0, s.widths()
	for i := 1; i < len(w); i++ {
		n += w[i-1]*w[i] + w[i]
	}
	return n
}

func (s Spec) equal(o Spec) bool {
	return s.Features == o.Features && s.Actions == o.Actions && s.Objectives == o.Objectives &&
		slices.Equal(s.Hidden, o.Hidden)
}

// clone copies the spec with Hidden not nil, so that equal specs have equal JSON.
func (s Spec) clone() Spec {
	s.Hidden = append([]int{}, s.Hidden...)
	return s
}

func (s Spec) String() string {
	return fmt.Sprintf("%d features, hidden %v, %d actions, %d objectives", s.Features, s.Hidden, s.Actions, s.Objectives)
}
