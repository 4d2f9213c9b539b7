package learn

import (
	"gorgonia.org/gorgonia"

	"github.com/evenkeel/evenkeel/ddqn/internal/dueling"
)

// duel is dueling.Fold as an operation on a matrix (the weights) or a vector (the bias).
type duel struct {
	fused
	result
	actions, objectives int
	grad                []float32 // where the gradient goes, see dense
}

// newDuel makes the operation for a matrix of that many rows, or for a vector where rows is 0.
func newDuel(rows, actions, objectives int, grad []float32) *duel {
	f := fusedVector("ddqn.dueling", 1, actions*objectives)
	if rows > 0 {
		f = fusedMatrix("ddqn.dueling", 1, rows, actions*objectives)
	}
	return &duel{f, f.result(nil), actions, objectives, grad}
}

func (d *duel) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	dueling.Fold(d.buf, floats(in[0]), d.actions, d.objectives)
	return d.out, nil
}

func (d *duel) DiffWRT(int) []bool { return []bool{true} }

func (d *duel) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	f := d.fused
	f.name = "ddqn.dueling'"
	f.shape = d.shape.Clone()
	f.shape[len(f.shape)-1] = d.objectives * (1 + d.actions)
	n, err := gorgonia.ApplyOp(&duelGrad{f, f.result(d.grad), d.actions, d.objectives}, grad)
	return gorgonia.Nodes{n}, err
}

type duelGrad struct {
	fused
	result
	actions, objectives int
}

func (d *duelGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	dueling.Gradient(d.buf, floats(in[0]), d.actions, d.objectives)
	return d.out, nil
}
