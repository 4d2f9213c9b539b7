package learn

import (
	"gorgonia.org/gorgonia"
)

// huberDelta is the error beyond which the loss grows linearly, in units of the reward.
const huberDelta = 1

// newHuber is the loss as an operation: the Huber loss of the difference d between chosen Q and target, d*d/2 where
// |d| <= huberDelta, huberDelta (|d| - huberDelta/2) beyond, averaged over the live rows and summed over the objectives
// (independent Q-learning). Inputs: chosen Q and targets, both rows x objectives, and the live mask. The loss is in value.
func newHuber(rows, objectives int) (o *op, value *gorgonia.F32) {
	value = gorgonia.NewF32(0)
	o = &op{name: "ddqn.huber", inputs: 3, out: value, wrt: []bool{true, false, false}}
	o.run = func(in []gorgonia.Value) error {
		*value = gorgonia.F32(huber(floats(in[0]), floats(in[1]), floats(in[2]), objectives))
		return nil
	}
	o.back = func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		d := newOp("ddqn.huber'", 4, nil, rows, objectives)
		d.run = func(in []gorgonia.Value) error {
			huberGradient(d.buf, floats(in[0]), floats(in[1]), floats(in[2]), objectives, float32(*in[3].(*gorgonia.F32)))
			return nil
		}
		dq, err := gorgonia.ApplyOp(d, in[0], in[1], in[2], grad)
		return gorgonia.Nodes{dq, nil, nil}, err
	}
	return o, value
}

func huber(q, y, live []float32, objectives int) float32 {
	share := 1 / sum(live)
	var total float32
	for i := range q {
		if live[i/objectives] == 0 {
			continue
		}
		d := abs(q[i] - y[i])
		h := float32(d*d) / 2
		if d > huberDelta {
			h = float32(huberDelta * (d - huberDelta/2.0))
		}
		total += float32(share * h)
	}
	return total
}

// huberGradient sets dst to scale times the derivative of the loss by q.
func huberGradient(dst, q, y, live []float32, objectives int, scale float32) {
	scale *= 1 / sum(live)
	for i := range dst {
		dst[i] = 0
		if live[i/objectives] > 0 {
			dst[i] = float32(scale * min(max(q[i]-y[i], -huberDelta), huberDelta))
		}
	}
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
