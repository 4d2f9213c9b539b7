package learn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"evenkeel/ddqn"
	"evenkeel/internal/matrix"
)

// weigh is the tests' scalar cost: the sum of an operation's results, each times a coefficient, in float64.
type weigh struct {
	*op
	coefficients []float32
	value        float64
}

func (w *weigh) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	w.value = 0
	for i, v := range floats(in[0]) {
		w.value += float64(w.coefficients[i]) * float64(v)
	}
	return gorgonia.NewF32(float32(w.value)), nil
}

func (w *weigh) DiffWRT(int) []bool { return []bool{true} }

func (w *weigh) SymDiff(in gorgonia.Nodes, _, _ *gorgonia.Node) (gorgonia.Nodes, error) {
	return gorgonia.Nodes{input(in[0].Graph(), "coefficients", w.coefficients, in[0].Shape()...)}, nil
}

// operand is an input of an operation under test.
type operand struct {
	data  []float32
	shape []int
	fixed bool // not differentiated
}

// checkGradient compares the gradient of the weighted sum of an operation's results by every operand with central differences.
// A scalar operation is its own cost.
func checkGradient(t *testing.T, tested gorgonia.Op, operands []operand, others ...func(*gorgonia.ExprGraph) *gorgonia.Node) {
	t.Helper()
	g := gorgonia.NewGraph()
	var in, wrt gorgonia.Nodes
	for i, o := range operands {
		n := input(g, string(rune('p'+i)), o.data, o.shape...)
		in = append(in, n)
		if !o.fixed {
			wrt = append(wrt, n)
		}
	}
	for _, other := range others {
		in = append(in, other(g))
	}
	cost, err := gorgonia.ApplyOp(tested, in...)
	if err != nil {
		t.Fatal(err)
	}
	var scalar gorgonia.Value
	value := func() float64 { return float64(*scalar.(*gorgonia.F32)) }
	if cost.IsScalar() {
		gorgonia.Read(cost, &scalar)
	} else {
		rng := rand.New(rand.NewPCG(9, 9))
		w := &weigh{op: &op{name: "weigh", inputs: 1}, coefficients: randomFloats(rng, cost.Shape().TotalSize())}
		value = func() float64 { return w.value }
		if cost, err = gorgonia.ApplyOp(w, cost); err != nil {
			t.Fatal(err)
		}
	}
	grads, err := gorgonia.Grad(cost, wrt...)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]gorgonia.Value, len(grads))
	for i, n := range grads {
		gorgonia.Read(n, &got[i])
	}
	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	eval := func() float64 {
		machine.Reset()
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		return value()
	}
	i := 0
	for _, o := range operands {
		if o.fixed {
			continue
		}
		eval()
		analytic := append([]float32(nil), floats(got[i])...)
		for j, x := range o.data {
			const h = 1.0 / 64 // a power of two, so that little is lost in x+h
			o.data[j] = x + h
			up := eval()
			o.data[j] = x - h
			down := eval()
			o.data[j] = x
			numeric := (up - down) / (2 * h)
			if d := math.Abs(numeric - float64(analytic[j])); !(d <= 1e-3*math.Max(1, math.Abs(numeric))) {
				t.Errorf("operand %d, element %d: gradient %v, central difference %v", i, j, analytic[j], numeric)
			}
		}
		i++
	}
}

func TestDenseGradient(t *testing.T) {
	const rows, in, out = 5, 6, 19
	layer := ddqn.Layer{In: in, Out: out}
	for _, relu := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(1, 1))
		w, b := randomFloats(rng, in*out), randomFloats(rng, out)
		// Draw rows until no sum is near the kink of relu, where central differences mean nothing.
		var x []float32
		for len(x) < rows*in {
			row, z := randomFloats(rng, in), make([]float32, out)
			matrix.Affine(matrix.Of(z, 1, out), matrix.Of(row, 1, in), matrix.Of(w, in, out), b, matrix.Unbounded, new(matrix.Scratch))
			near := false
			for _, v := range z {
				near = near || abs(v) < 0.06
			}
			if !near {
				x = append(x, row...)
			}
		}
		checkGradient(t, newDense(rows, layer, relu, true), []operand{
			{x, []int{rows, in}, false}, {w, []int{in, out}, false}, {b, []int{out}, false},
		})
		// The first layer's input has no gradient, the weights have the same.
		checkGradient(t, newDense(rows, layer, relu, false), []operand{
			{x, []int{rows, in}, true}, {w, []int{in, out}, false}, {b, []int{out}, false},
		})
	}
}

func TestDuelingGradient(t *testing.T) {
	const rows, actions, objectives = 4, 5, 3
	rng := rand.New(rand.NewPCG(2, 1))
	const in = objectives * (1 + actions)
	checkGradient(t, newDuel(rows, actions, objectives, nil), []operand{{randomFloats(rng, rows*in), []int{rows, in}, false}})
	checkGradient(t, newDuel(0, actions, objectives, nil), []operand{{randomFloats(rng, in), []int{in}, false}})
}

func TestChosenGradient(t *testing.T) {
	const rows, actions, objectives = 4, 5, 3
	rng := rand.New(rand.NewPCG(3, 1))
	q := randomFloats(rng, rows*actions*objectives)
	checkGradient(t, newChosen(rows, actions, objectives), []operand{{q, []int{rows, actions * objectives}, false}},
		func(g *gorgonia.ExprGraph) *gorgonia.Node {
			return gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(rows), gorgonia.WithName("actions"),
				gorgonia.WithValue(tensor.New(tensor.WithShape(rows), tensor.WithBacking([]int{4, 0, 2, 2}))))
		})
}

func TestHuberGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	const rows = 12
	// Errors well inside and well outside of the threshold.
	y := randomFloats(rng, rows*2)
	q := make([]float32, rows*2)
	for i := range q {
		q[i] = y[i] + []float32{0.3, -0.5, 2, -2.5}[rng.IntN(4)]
	}
	live := []float32{1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0}
	loss, _ := newHuber(rows, 2)
	checkGradient(t, loss, []operand{
		{q, []int{rows, 2}, false}, {y, []int{rows, 2}, true}, {live, []int{rows}, true},
	})
}

func TestChosenRefusesUnknownAction(t *testing.T) {
	pick := newChosen(1, 2, 1)
	for _, a := range []int{-1, 2} {
		_, err := pick.Do(wrap([]float32{1, 2}, 1, 2), tensor.New(tensor.WithShape(1), tensor.WithBacking([]int{a})))
		if err == nil || !strings.Contains(err.Error(), "between 0 and 1") {
			t.Errorf("action %d: %v", a, err)
		}
	}
}
