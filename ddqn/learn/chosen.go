package learn

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// chosen picks the Q-values of the action that each row took. Inputs: Q rows x actions*objectives, actions rows
// (int). Result: rows x objectives. It does the work of the usual one-hot product without the zeros.
type chosen struct {
	fused
	result
	actions, objectives int
}

func newChosen(rows, actions, objectives int) *chosen {
	f := fusedMatrix("ddqn.chosen", 2, rows, objectives)
	return &chosen{f, f.result(nil), actions, objectives}
}

func (c *chosen) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	q, r := floats(in[0]), c.objectives
	for i, a := range in[1].(*tensor.Dense).Ints() {
		if a < 0 || a >= c.actions {
			return nil, fmt.Errorf("ddqn/learn: action %d in row %d, must be between 0 and %d", a, i, c.actions-1)
		}
		copy(c.buf[i*r:][:r], q[(i*c.actions+a)*r:])
	}
	return c.out, nil
}

func (c *chosen) DiffWRT(int) []bool { return []bool{true, false} }

func (c *chosen) SymDiff(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	f := fusedMatrix("ddqn.chosen'", 2, c.shape[0], c.actions*c.objectives)
	dq, err := gorgonia.ApplyOp(&chosenGrad{f, f.result(nil), c.actions, c.objectives}, grad, in[1])
	return gorgonia.Nodes{dq, nil}, err
}

// chosenGrad puts the gradient back at the chosen action and zero elsewhere.
type chosenGrad struct {
	fused
	result
	actions, objectives int
}

func (c *chosenGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	grad, r := floats(in[0]), c.objectives
	clear(c.buf)
	for i, a := range in[1].(*tensor.Dense).Ints() {
		copy(c.buf[(i*c.actions+a)*r:][:r], grad[i*r:])
	}
	return c.out, nil
}
