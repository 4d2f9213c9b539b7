package learn

import (
	"gorgonia.org/gorgonia"
)

// lossShape says how the Huber losses of a batch are pooled into one number:
//
//   - an objective that is not pooled: every live row has its own loss, averaged over the live rows of the batch
//     (independent Q-learning);
//   - a pooled objective: the mean of the chosen Q over a group's live rows against the mean of their targets,
//     averaged over the groups that have a live row. This is VDN (Sunehag et al. 2018) with the mean for the sum;
//   - the loss is the sum over the objectives.
//
// Huber with threshold delta: d*d/2 where |d| <= delta, delta (|d| - delta/2) beyond.
type lossShape struct {
	groups, rows, objectives int // rows per group
	pooled                   []bool
	delta                    float32
}

// each calls f for every loss term: objective r, rows [from, to) of which live counts, n live ones, and the
// share of the term in the average.
func (s lossShape) each(live []float32, f func(r, from, to int, n, share float32)) {
	var rows, groups float32
	for g := range s.groups {
		if n := sum(live[g*s.rows:][:s.rows]); n > 0 {
			rows, groups = rows+n, groups+1
		}
	}
	for g := range s.groups {
		from := g * s.rows
		n := sum(live[from:][:s.rows])
		if n == 0 {
			continue
		}
		for r := range s.objectives {
			if s.pooled[r] {
				f(r, from, from+s.rows, n, 1/groups)
				continue
			}
			for i := from; i < from+s.rows; i++ {
				if live[i] > 0 {
					f(r, i, i+1, 1, 1/rows)
				}
			}
		}
	}
}

// error is the mean difference of q and y over the live rows of a term.
func (s lossShape) error(q, y, live []float32, r, from, to int, n float32) float32 {
	var d float32
	for i := from; i < to; i++ {
		if live[i] > 0 {
			d += q[i*s.objectives+r] - y[i*s.objectives+r]
		}
	}
	return d / n
}

func (s lossShape) loss(q, y, live []float32) float32 {
	var total float32
	s.each(live, func(r, from, to int, n, share float32) {
		d := abs(s.error(q, y, live, r, from, to, n))
		h := float32(d*d) / 2
		if d > s.delta {
			h = float32(s.delta * (d - s.delta/2))
		}
		total += float32(share * h)
	})
	return total
}

// gradient sets dst to scale times the derivative of the loss by q.
func (s lossShape) gradient(dst, q, y, live []float32, scale float32) {
	clear(dst)
	s.each(live, func(r, from, to int, n, share float32) {
		d := s.error(q, y, live, r, from, to, n)
		g := float32(float32(scale*share)*min(max(d, -s.delta), s.delta)) / n
		for i := from; i < to; i++ {
			if live[i] > 0 {
				dst[i*s.objectives+r] = g
			}
		}
	})
}

func sum(values []float32) float32 {
	var s float32
	for _, v := range values {
		s += v
	}
	return s
}

func abs(v float32) float32 {
	if v < 0 {
		return -v
	}
	return v
}

// huber is the loss as an operation. Inputs: chosen Q and targets, both rows x objectives, and the live mask.
type huber struct {
	fused
	lossShape
	value *gorgonia.F32
}

func newHuber(s lossShape) *huber {
	return &huber{fused{name: "ddqn.huber", arity: 3, shape: nil}, s, gorgonia.NewF32(0)}
}

func (h *huber) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	*h.value = gorgonia.F32(h.loss(floats(in[0]), floats(in[1]), floats(in[2])))
	return h.value, nil
}

func (h *huber) DiffWRT(int) []bool { return []bool{true, false, false} }

func (h *huber) SymDiff(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	f := fusedMatrix("ddqn.huber'", 4, h.groups*h.rows, h.objectives)
	dq, err := gorgonia.ApplyOp(&huberGrad{f, f.result(nil), h.lossShape}, in[0], in[1], in[2], grad)
	return gorgonia.Nodes{dq, nil, nil}, err
}

type huberGrad struct {
	fused
	result
	lossShape
}

func (h *huberGrad) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	scale := float32(*in[3].(*gorgonia.F32))
	h.gradient(h.buf, floats(in[0]), floats(in[1]), floats(in[2]), scale)
	return h.out, nil
}
