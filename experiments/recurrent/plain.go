package main

import (
	"math"

	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/internal/matrix"
)

// scorer values the actions of a fleet round by round, without Gorgonia, as the deployed actor does. It keeps the rounds' products with the GRU's
// input weights, so that a decision has one new one and the products with the states.
type scorer struct {
	*network
	rounds int                    // seen
	kept   [window][3][]float32   // the newest rounds' inputs of the gates, by round modulo window
	h, sum []float32              // states, and a gate's
	gate   [3][]float32           // of the step
	mean   [fleet * state]float32 // the same row for every node
	layer1 [fleet * hidden]float32
	layer2 [fleet * hidden]float32
	joint  []float32
	values []float32
	fold   []float32
	s      matrix.Scratch
}

func newScorer(n *network) *scorer {
	s := &scorer{network: n, h: make([]float32, fleet*state), sum: make([]float32, fleet*state), joint: make([]float32, fleet*outputs), values: make([]float32, fleet*len(env.Actions)), fold: dueling()}
	for g := range s.gate {
		s.gate[g] = make([]float32, fleet*state)
		for k := range s.kept {
			s.kept[k][g] = make([]float32, fleet*state)
		}
	}
	return s
}

// see takes in a round's rows, fleet x wide, and returns the values of every node's actions; valid until the next call.
func (s *scorer) see(rows []float32) []float32 {
	x := matrix.Of(rows, fleet, wide)
	first := matrix.Of(s.layer1[:], fleet, hidden)
	matrix.Multiply(first, x, s.first.matrix(), &s.s)
	if s.recurrent {
		for g := range s.gates {
			matrix.Multiply(matrix.Of(s.kept[s.rounds%window][g], fleet, state), x, s.gates[g].input.matrix(), &s.s)
		}
		s.rounds++
		s.remember()
		matrix.MultiplyAdd(first, matrix.Of(s.h, fleet, state), s.own.matrix(), &s.s)
		matrix.MultiplyAdd(first, matrix.Of(s.mean[:], fleet, state), s.pooled.matrix(), &s.s)
	}
	rectify(s.layer1[:])
	matrix.Affine(matrix.Of(s.layer2[:], fleet, hidden), first, s.second.matrix(), s.secondBias.w, 0, &s.s)
	joint := matrix.Of(s.joint, fleet, outputs)
	matrix.Affine(joint, matrix.Of(s.layer2[:], fleet, hidden), s.head.matrix(), s.value.w, matrix.Unbounded, &s.s)
	matrix.Multiply(matrix.Of(s.values, fleet, len(env.Actions)), joint, matrix.Of(s.fold, outputs, len(env.Actions)), &s.s)
	return s.values
}

// remember runs the GRU over the newest rounds and pools.
func (s *scorer) remember() {
	clear(s.h)
	h := matrix.Of(s.h, fleet, state)
	for round := max(s.rounds-window, 0); round < s.rounds; round++ {
		for g, input := range s.kept[round%window] {
			with := h
			if g == 2 {
				for i, r := range s.gate[1] {
					s.sum[i] = r * s.h[i]
				}
				with = matrix.Of(s.sum, fleet, state)
			}
			copy(s.gate[g], input)
			matrix.MultiplyAdd(matrix.Of(s.gate[g], fleet, state), with, s.gates[g].state.matrix(), &s.s)
			for i, v := range s.gate[g] {
				if g == 2 {
					s.gate[g][i] = float32(math.Tanh(float64(v)))
				} else {
					s.gate[g][i] = float32(1 / (1 + math.Exp(-float64(v))))
				}
			}
		}
		for i, n := range s.gate[2] {
			s.h[i] = n + float32(s.gate[0][i]*(s.h[i]-n))
		}
	}
	for j := range state {
		sum := float32(0)
		for i := range fleet {
			sum += s.h[i*state+j]
		}
		for i := range fleet {
			s.mean[i*state+j] = sum / fleet
		}
	}
}

func (l *layer) matrix() matrix.Matrix { return matrix.Of(l.w, l.in, l.out) }

func rectify(v []float32) {
	for i, x := range v {
		v[i] = max(x, 0)
	}
}

// explained is the share of the variance of the taken actions' rewards that a network explains on recorded episodes, and what is missing from one in each:
// its mean squared error over the variance of all.
func explained(n *network, data []*played) (missed []float64, share float64) {
	all := 0.0
	for _, p := range data {
		for _, r := range p.rewards {
			all += float64(r) / float64(len(p.rewards)*len(data))
		}
	}
	spread := 0.0
	for _, p := range data {
		s, sum := newScorer(n), 0.0
		for k := range p.rounds() {
			values := s.see(p.rows[k*fleet*wide:][:fleet*wide])
			for i := range fleet {
				at := k*fleet + i
				r := float64(p.rewards[at])
				d := float64(values[i*len(env.Actions)+p.actions[at]]) - r
				sum += d * d / float64(len(p.rewards))
				spread += (r - all) * (r - all) / float64(len(p.rewards)*len(data))
			}
		}
		missed = append(missed, sum)
	}
	for e := range missed {
		missed[e] /= spread
	}
	return missed, 1 - mean(missed)
}
