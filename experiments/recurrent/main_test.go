package main

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/env"
)

// recorded makes up an episode, of three features. A reward follows from the node's own row of the round before and from the fleet's mean then: nothing of
// it is in the newest row.
func recorded(rng *rand.Rand, rounds int) *played {
	p := &played{}
	for range rounds * fleet {
		for k := range env.Features {
			p.rows = append(p.rows, 0)
			if k < 3 {
				p.rows[len(p.rows)-1] = float32(rng.NormFloat64())
			}
		}
		p.rows = append(p.rows, 1)
		p.actions = append(p.actions, rng.IntN(len(env.Actions)))
		p.rewards = append(p.rewards, 0)
	}
	for k := 1; k < rounds; k++ {
		mean := float32(0)
		for i := range fleet {
			mean += p.rows[((k-1)*fleet+i)*wide] / fleet
		}
		for i := range fleet {
			p.rewards[k*fleet+i] = p.rows[((k-1)*fleet+i)*wide] + mean
		}
	}
	return p
}

// twin values the actions of a node in a round by the formulas, one number after the other, in float64.
func twin(n *network, p *played, round, node int) []float64 {
	row := func(round, node int) []float64 {
		x := make([]float64, wide)
		for k := range x {
			x[k] = float64(p.rows[(round*fleet+node)*wide+k])
		}
		return x
	}
	times := func(x []float64, l layer) []float64 {
		y := make([]float64, l.out)
		for j := range y {
			for i, v := range x {
				y[j] += v * float64(l.w[i*l.out+j])
			}
		}
		return y
	}
	plus := func(x, y []float64) []float64 {
		sum := slices.Clone(x)
		for i := range sum {
			sum[i] += y[i]
		}
		return sum
	}
	each := func(x []float64, f func(float64) float64) []float64 {
		for i, v := range x {
			x[i] = f(v)
		}
		return x
	}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	relu := func(v float64) float64 { return max(v, 0) }
	last := func(node int) []float64 {
		h := make([]float64, state)
		for k := max(0, round-window+1); k <= round; k++ {
			x := row(k, node)
			z := each(plus(times(x, n.gates[0].input), times(h, n.gates[0].state)), sigmoid)
			r := each(plus(times(x, n.gates[1].input), times(h, n.gates[1].state)), sigmoid)
			for i := range r {
				r[i] *= h[i]
			}
			c := each(plus(times(x, n.gates[2].input), times(r, n.gates[2].state)), math.Tanh)
			for i := range h {
				h[i] = (1-z[i])*c[i] + z[i]*h[i]
			}
		}
		return h
	}
	sum := times(row(round, node), n.first)
	if n.recurrent {
		mean := make([]float64, state)
		for i := range fleet {
			for k, v := range last(i) {
				mean[k] += v / fleet
			}
		}
		sum = plus(sum, plus(times(last(node), n.own), times(mean, n.pooled)))
	}
	out := plus(times(each(plus(times(each(sum, relu), n.second), times([]float64{1}, n.secondBias)), relu), n.head), times([]float64{1}, n.value))
	average := 0.0
	for _, a := range out[1:] {
		average += a / float64(len(env.Actions))
	}
	values := make([]float64, len(env.Actions))
	for a := range values {
		values[a] = out[0] + out[1+a] - average
	}
	return values
}

// shaken is a network none of whose weights is zero.
func shaken(recurrent bool) *network {
	n := newNetwork(recurrent, 3)
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range n.weights {
		n.weights[i] += float32(0.1 * rng.NormFloat64())
	}
	return n
}

// The graph and the scorer against the formulas: in the first rounds, of which there are few before, and later.
func TestTwin(t *testing.T) {
	p := recorded(rand.New(rand.NewPCG(1, 1)), 2*window)
	for _, recurrent := range []bool{false, true} {
		n := shaken(recurrent)
		rounds := []int{0, 1, window - 1, window, 2*window - 1}
		g, err := newGraph(n, len(rounds)*fleet)
		if err != nil {
			t.Fatal(err)
		}
		for b, round := range rounds {
			g.load(b, p, round)
		}
		if _, err := g.run(make([]float32, len(n.weights))); err != nil {
			t.Fatal(err)
		}
		s, seen := newScorer(n), [][]float32{}
		for k := range p.rounds() {
			seen = append(seen, slices.Clone(s.see(p.rows[k*fleet*wide:][:fleet*wide])))
		}
		for b, round := range rounds {
			for i := range fleet {
				for a, want := range twin(n, p, round, i) {
					graph, scorer := float64(floats(g.values)[(b*fleet+i)*len(env.Actions)+a]), float64(seen[round][i*len(env.Actions)+a])
					if math.Abs(graph-want) > 1e-4 || math.Abs(scorer-want) > 1e-4 {
						t.Fatalf("recurrent %t, round %d, node %d, action %d: graph %v, scorer %v, want %v", recurrent, round, i, a, graph, scorer, want)
					}
				}
			}
		}
	}
}

// The gradient along random directions against the twin's loss a little to both sides: so little that hardly any unit is switched on or off.
func TestGradient(t *testing.T) {
	p := recorded(rand.New(rand.NewPCG(1, 2)), window+2)
	for _, recurrent := range []bool{false, true} {
		n := shaken(recurrent)
		g, err := newGraph(n, fleet)
		if err != nil {
			t.Fatal(err)
		}
		round := window + 1
		g.load(0, p, round)
		gradient := make([]float32, len(n.weights))
		got, err := g.run(gradient)
		if err != nil {
			t.Fatal(err)
		}
		again := make([]float32, len(n.weights))
		if _, err := g.run(again); err != nil || !slices.Equal(gradient, again) {
			t.Fatalf("recurrent %t: a second run differs, %v", recurrent, err)
		}
		loss := func() float64 {
			sum := 0.0
			for i := range fleet {
				d := twin(n, p, round, i)[p.actions[round*fleet+i]] - float64(p.rewards[round*fleet+i])
				sum += d * d / fleet
			}
			return sum
		}
		if want := loss(); math.Abs(got-want) > 1e-4*(1+want) {
			t.Fatalf("recurrent %t: loss %v, want %v", recurrent, got, want)
		}
		at := 0
		for _, l := range n.layers() { // a direction for each layer, so that none hides another
			rng := rand.New(rand.NewPCG(5, uint64(at)))
			kept, along, step := slices.Clone(l.w), 0.0, make([]float32, len(l.w))
			for i := range step {
				step[i] = float32(1e-5 * rng.NormFloat64())
				along += float64(step[i]) * float64(gradient[at+i])
			}
			shifted := func(sign float32) float64 {
				for i := range l.w {
					l.w[i] = kept[i] + sign*step[i]
				}
				return loss()
			}
			want := (shifted(1) - shifted(-1)) / 2
			copy(l.w, kept)
			if math.Abs(along-want) > 0.02*math.Abs(want)+2e-8 {
				t.Errorf("recurrent %t, %s: %v along the gradient, want %v", recurrent, l.name, along, want)
			}
			at += len(l.w)
		}
	}
}

// Pooling gives every node of a fleet its fleet's mean, and no other fleet's.
func TestPooling(t *testing.T) {
	const rows = 2 * fleet
	m := pooling(rows)
	for i := range rows {
		mean, want := 0.0, 0.0
		for j := range rows {
			mean += float64(m[i*rows+j]) * float64(j*j)
		}
		for j := i / fleet * fleet; j < (i/fleet+1)*fleet; j++ {
			want += float64(j*j) / fleet
		}
		if math.Abs(mean-want) > 1e-5 {
			t.Errorf("row %d: %v, want %v", i, mean, want)
		}
	}
}

// What only earlier rounds say the summary learns and the row alone cannot; two runs of a seed give the same bits. They explained .82 and -.04.
func TestLearns(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	data, other := []*played{recorded(rng, 200), recorded(rng, 200), recorded(rng, 200)}, []*played{recorded(rng, 100)}
	learn := func(recurrent bool, updates int) *network {
		n, err := fit(context.Background(), settings{recurrent: recurrent, seed: 1, updates: updates, rate: 3e-3}, data)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	score := func(n *network) float64 {
		_, e := explained(n, other)
		return e
	}
	alone, summary := score(learn(false, 150)), score(learn(true, 150))
	if summary < 0.3 || alone > 0.1 {
		t.Errorf("explained by the summary %.2f, by the row alone %.2f", summary, alone)
	}
	if !slices.Equal(learn(true, 20).weights, learn(true, 20).weights) {
		t.Error("two runs of one seed gave different networks")
	}
}

// A recorded round's rows are those of the cluster that a seed gives, and a window before the first round is empty.
func TestRecords(t *testing.T) {
	one, err := gather(context.Background(), 7, 2, 20)
	if err != nil {
		t.Fatal(err)
	}
	two, err := gather(context.Background(), 7, 2, 20)
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range one {
		if p.rounds() != 20 || len(p.rewards) != 20*fleet || len(p.rows) != 20*fleet*wide {
			t.Fatalf("%d rounds, %d rewards, %d numbers", p.rounds(), len(p.rewards), len(p.rows))
		}
		if !slices.Equal(p.rows, two[k].rows) || !slices.Equal(p.actions, two[k].actions) || !slices.Equal(p.rewards, two[k].rewards) {
			t.Error("two runs of one seed recorded different rounds")
		}
		if slices.Max(p.rewards) > 0 || slices.Min(p.rewards) >= 0 {
			t.Errorf("rewards from %v to %v", slices.Min(p.rewards), slices.Max(p.rewards))
		}
	}
}
