package agent

import (
	"math"
	"slices"

	"evenkeel/ddqn"
	"evenkeel/env"
)

// values holds the network's values of every action of every node, for the objectives with a weight above 0. Most runs have
// one such objective; scoring the others would take time for nothing.
type values struct {
	network *ddqn.Network
	actor   *ddqn.Actor // of the objectives in of
	whole   *ddqn.Actor // of all objectives, for explanations
	of      []int       // objectives with a weight above 0, in order
	weights []float32   // of these objectives
	q       []float32   // node by node, action by action
}

// score computes the values of all actions for rows of the network's input.
func (v *values) score(rows []float32, weights [env.Objectives]float64) {
	var buffer [env.Objectives]int
	of := buffer[:0]
	v.weights = v.weights[:0]
	for o, w := range weights {
		if w != 0 {
			of, v.weights = append(of, o), append(v.weights, float32(w))
		}
	}
	if v.actor == nil || !slices.Equal(of, v.of) {
		v.of = slices.Clone(of)
		v.actor = ddqn.NewActor(v.network, v.of...)
	}
	v.q = v.actor.Q(v.q, rows)
}

// best returns node i's action with the highest weighted value among [from, to), this value, and that of the model's action.
func (v *values) best(i, from, to, model int) (best int, most, models float32) {
	width := len(v.weights)
	q := v.q[i*len(env.Actions)*width:][:len(env.Actions)*width]
	most = float32(math.Inf(-1))
	if width == 1 && v.weights[0] == 1 { // most runs
		for k := from; k < to; k++ {
			if q[k] > most {
				best, most = k, q[k]
			}
		}
		return best, most, q[model]
	}
	for k := from; k < to; k++ {
		sum := float32(0)
		for o, w := range v.weights {
			sum += float32(w * q[k*width+o]) // rounded, as in value
		}
		if k == model {
			models = sum
		}
		if sum > most {
			best, most = k, sum
		}
	}
	return best, most, models
}

// all returns the values of one row of the network's input, by action and objective.
func (v *values) all(row []float32) []float32 {
	if v.whole == nil {
		v.whole = ddqn.NewActor(v.network)
	}
	return v.whole.Q(nil, row)
}

func greedy(q []float32, w [env.Objectives]float64) int {
	w32 := [env.Objectives]float32{}
	for i, v := range w {
		w32[i] = float32(v)
	}
	return ddqn.Greedy(q, len(env.Actions), env.Objectives, w32[:])
}

func value(q []float32, action int, w [env.Objectives]float64) float32 {
	v := float32(0)
	for o := range w {
		v += float32(float32(w[o]) * q[action*env.Objectives+o]) // rounded: no fused multiply-add
	}
	return v
}
