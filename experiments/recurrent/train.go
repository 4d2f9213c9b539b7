package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/evenkeel/evenkeel/internal/adam"
)

// Of an update. Adam's constants, the clipping and the decay of the rate are the deployed learner's.
const (
	batch     = 32 // rounds, each with all its nodes
	finalRate = 0.02
	clipNorm  = 10
	epsilon   = 1e-5
)

// building guards the construction of graphs, as Gorgonia keeps state of its own there.
var building sync.Mutex

// settings say how a network is trained.
type settings struct {
	recurrent bool
	seed      uint64
	updates   int
	rate      float64
}

// fit trains a network on the taken actions' rewards: a value with discount 0. Of one seed both kinds see the same rounds in the same order.
func fit(ctx context.Context, s settings, data []*played) (*network, error) {
	n := newNetwork(s.recurrent, s.seed)
	building.Lock()
	t, err := newGraph(n, batch*fleet)
	building.Unlock()
	if err != nil {
		return nil, err
	}
	defer t.machine.Close()
	rng := rand.New(rand.NewPCG(s.seed, 3))
	gradient, m, v := make([]float32, len(n.weights)), make([]float32, len(n.weights)), make([]float32, len(n.weights))
	c := adam.Config{Beta1: 0.9, Beta2: 0.999, Epsilon: epsilon}
	power1, power2 := 1.0, 1.0
	for k := range s.updates {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for b := range batch {
			p := data[rng.IntN(len(data))]
			t.load(b, p, rng.IntN(p.rounds()))
		}
		loss, err := t.run(gradient)
		if err != nil {
			return nil, err
		}
		square := 0.0
		for _, g := range gradient {
			square += float64(g) * float64(g)
		}
		if sum := square + loss; math.IsNaN(sum) || math.IsInf(sum, 0) {
			return nil, fmt.Errorf("recurrent: update %d: the loss is %v", k, loss)
		}
		power1, power2 = 0.9*power1, 0.999*power2
		rate := s.rate * (finalRate + (1-finalRate)*(1-float64(k)/float64(s.updates)))
		c.Update(n.weights, gradient, m, v, adam.Step{Rate: rate, Power1: power1, Power2: power2, Scale: float32(min(1, clipNorm/math.Sqrt(square))), Keep: 1})
	}
	return n, nil
}

// load puts a recorded round into place b of the batch, with the rounds before it.
func (t *graph) load(b int, p *played, round int) {
	for k, x := range t.inputs {
		copyRound(x[b*fleet*wide:][:fleet*wide], p, round-len(t.inputs)+1+k)
	}
	actions := len(t.taken) / len(t.rewards)
	for i := range fleet {
		row := t.taken[(b*fleet+i)*actions:][:actions]
		clear(row)
		row[p.actions[round*fleet+i]] = 1
	}
	copy(t.rewards[b*fleet:], p.rewards[round*fleet:][:fleet])
}

// copyRound writes the rows of a round, zeros where it lies before the first.
func copyRound(dst []float32, p *played, round int) {
	if round < 0 {
		clear(dst)
		return
	}
	copy(dst, p.rows[round*fleet*wide:])
}
