package learn

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/ddqn"
)

// twin is the whole update once more, in plain Go and float64, one row at a time, with the dueling head applied to
// the outputs as in the paper. It shares only the drawing of batches with the learner.
type twin struct {
	spec           ddqn.Spec
	cfg            Config
	online, target []twinLayer
	m, v           []twinLayer
	updates        int
}

type twinLayer struct {
	w [][]float64 // in x out
	b []float64
}

func twinLayers(n *ddqn.Network) []twinLayer {
	var layers []twinLayer
	for _, l := range n.Spec().Layers(n.Weights()) {
		var t twinLayer
		for i := range l.In {
			t.w = append(t.w, make([]float64, l.Out))
			for j := range l.Out {
				t.w[i][j] = float64(l.W[i*l.Out+j])
			}
		}
		for _, b := range l.B {
			t.b = append(t.b, float64(b))
		}
		layers = append(layers, t)
	}
	return layers
}

// zeros are layers of the same shape.
func zeros(layers []twinLayer) []twinLayer {
	var all []twinLayer
	for _, l := range layers {
		t := twinLayer{b: make([]float64, len(l.b))}
		for _, row := range l.w {
			t.w = append(t.w, make([]float64, len(row)))
		}
		all = append(all, t)
	}
	return all
}

// forward returns the inputs of every layer and the Q-values [action][objective].
func (t *twin) forward(layers []twinLayer, row []float32) (acts [][]float64, q [][]float64) {
	h := make([]float64, len(row))
	for i, v := range row {
		h[i] = float64(v)
	}
	for n, l := range layers {
		acts = append(acts, h)
		z := append([]float64(nil), l.b...)
		for i, x := range h {
			for j := range z {
				z[j] += x * l.w[i][j]
			}
		}
		if n < len(layers)-1 {
			for j := range z {
				z[j] = math.Max(z[j], 0)
			}
		}
		h = z
	}
	actions, objectives := t.spec.Actions, t.spec.Objectives
	for a := range actions {
		q = append(q, make([]float64, objectives))
		for r := range objectives {
			mean := 0.0
			for k := range actions {
				mean += h[objectives+k*objectives+r] / float64(actions)
			}
			q[a][r] = h[r] + h[objectives+a*objectives+r] - mean
		}
	}
	return acts, q
}

// backward adds the gradients of one row, given dL/dQ of the chosen action a.
func (t *twin) backward(grads []twinLayer, acts [][]float64, a int, dq []float64) {
	actions, objectives := t.spec.Actions, t.spec.Objectives
	dz := make([]float64, objectives*(1+actions))
	for r, g := range dq {
		dz[r] = g
		for k := range actions {
			dz[objectives+k*objectives+r] = -g / float64(actions)
		}
		dz[objectives+a*objectives+r] += g
	}
	for n := len(grads) - 1; n >= 0; n-- {
		x := acts[n]
		dx := make([]float64, len(x))
		for i := range x {
			for j, d := range dz {
				grads[n].w[i][j] += x[i] * d
				dx[i] += t.online[n].w[i][j] * d
			}
			if x[i] == 0 { // relu; of no consequence for the features themselves
				dx[i] = 0
			}
		}
		for j, d := range dz {
			grads[n].b[j] += d
		}
		dz = dx
	}
}

// twinClip is low enough that gradients are clipped.
const twinClip = 0.5

func (t *twin) update(b *batch) Stats {
	c, objectives, f := t.cfg, t.spec.Objectives, t.spec.Features
	rows := c.Batch * c.Group
	y, q := make([][]float64, rows), make([][]float64, rows)
	acts := make([][][]float64, rows)
	liveRows, meanQ := 0.0, 0.0
	for i := range rows {
		g := i / c.Group
		w := b.weights[g*objectives:][:objectives]
		_, online := t.forward(t.online, b.later[i*f:][:f])
		_, target := t.forward(t.target, b.later[i*f:][:f])
		best, bestValue := 0, math.Inf(-1)
		for a := range online {
			v := 0.0
			for r := range objectives {
				v += float64(w[r]) * online[a][r]
			}
			if v > bestValue {
				best, bestValue = a, v
			}
		}
		y[i] = make([]float64, objectives)
		for r := range objectives {
			y[i][r] = float64(b.returns[i*objectives+r]) + float64(b.discount[g])*target[best][r]
		}
		var all [][]float64
		acts[i], all = t.forward(t.online, b.x[i*f:][:f])
		q[i] = all[b.actions[i]]
		if b.live[i] > 0 {
			liveRows++
			for _, v := range q[i] {
				meanQ += v
			}
		}
	}
	grads := zeros(t.online)
	loss := 0.0
	dq := make([][]float64, rows)
	for i := range dq {
		dq[i] = make([]float64, objectives)
	}
	for r := range objectives {
		for g := range c.Batch {
			var members []int
			for i := g * c.Group; i < (g+1)*c.Group; i++ {
				if b.live[i] > 0 {
					members = append(members, i)
				}
			}
			for _, i := range members {
				l, dl := huberTwin(q[i][r]-y[i][r], huberDelta)
				loss += l / liveRows
				dq[i][r] = dl / liveRows
			}
		}
	}
	for i := range rows {
		t.backward(grads, acts[i], b.actions[i], dq[i])
	}
	square := 0.0
	eachTwin(func(g ...*float64) { square += *g[0] * *g[0] }, grads)
	norm, rate := math.Sqrt(square), c.rate(t.updates)
	scale := math.Min(1, twinClip/norm)
	t.updates++
	n := float64(t.updates)
	eachTwin(func(p ...*float64) {
		w, target, m, v, g := p[0], p[1], p[2], p[3], *p[4]*scale
		*m = beta1**m + (1-beta1)*g
		*v = beta2**v + (1-beta2)*g*g
		*w -= rate * (*m / (1 - math.Pow(beta1, n))) / (math.Sqrt(*v/(1-math.Pow(beta2, n))) + epsilon)
		*target += c.Tau * (*w - *target)
	}, t.online, t.target, t.m, t.v, grads)
	return Stats{Loss: loss, GradNorm: norm, MeanQ: meanQ / liveRows / float64(objectives), LearningRate: rate}
}

func huberTwin(d, delta float64) (loss, derivative float64) {
	if math.Abs(d) <= delta {
		return d * d / 2, d
	}
	return delta * (math.Abs(d) - delta/2), math.Copysign(delta, d)
}

// eachTwin walks over the same element of several networks at once.
func eachTwin(f func(p ...*float64), nets ...[]twinLayer) {
	p := make([]*float64, len(nets))
	for n := range nets[0] {
		for i := range nets[0][n].w {
			for j := range nets[0][n].w[i] {
				for k := range nets {
					p[k] = &nets[k][n].w[i][j]
				}
				f(p...)
			}
		}
		for j := range nets[0][n].b {
			for k := range nets {
				p[k] = &nets[k][n].b[j]
			}
			f(p...)
		}
	}
}

// maxDifference is the largest difference of a weight, relative to the network's root mean square weight.
func maxDifference(n *ddqn.Network, t []twinLayer) float64 {
	worst, square := 0.0, 0.0
	for k, l := range n.Spec().Layers(n.Weights()) {
		for i := range l.In {
			for j := range l.Out {
				worst = math.Max(worst, math.Abs(float64(l.W[i*l.Out+j])-t[k].w[i][j]))
				square += t[k].w[i][j] * t[k].w[i][j]
			}
		}
		for j := range l.Out {
			worst = math.Max(worst, math.Abs(float64(l.B[j])-t[k].b[j]))
		}
	}
	return worst / math.Sqrt(square/float64(len(n.Weights())))
}

func TestUpdateEqualsPlainGo(t *testing.T) {
	spec := ddqn.Spec{Features: 7, Actions: 5, Objectives: 2, Hidden: []int{17, 9}}
	cfg := Config{
		Batch: 6, Group: 4, LearningRate: 1e-3, DecayUpdates: 300, FinalRate: 0.1, Tau: 0.02,
	}
	rng := rand.New(rand.NewPCG(5, 5))
	net, err := ddqn.NewNetwork(spec, rng)
	if err != nil {
		t.Fatal(err)
	}
	learner, err := NewLearner(cfg, net, rand.NewPCG(6, 6))
	if err != nil {
		t.Fatal(err)
	}
	learner.adam.clip = twinClip
	plain := &twin{
		spec: spec, cfg: learner.cfg, online: twinLayers(net), target: twinLayers(net),
		m: zeros(twinLayers(net)), v: zeros(twinLayers(net)),
	}
	replay := randomReplay(t, ReplayConfig{Streams: 3, Capacity: 200, Group: 4, Features: 7, Objectives: 2}, 5, 300, rng)
	b, draws := newBatch(6, 4, 7, 2), rand.New(rand.NewPCG(6, 6))
	for i := range 200 {
		got, err := learner.Update(replay)
		if err != nil {
			t.Fatal(err)
		}
		replay.sample(b, learner.cfg.NStep, float32(learner.cfg.Gamma), draws)
		want := plain.update(b)
		for _, c := range []struct {
			name      string
			got, want float64
		}{{"loss", got.Loss, want.Loss}, {"gradient norm", got.GradNorm, want.GradNorm}, {"mean Q", got.MeanQ, want.MeanQ}, {"rate", got.LearningRate, want.LearningRate}} {
			if math.Abs(c.got-c.want) > 1e-4*math.Max(0.1, math.Abs(c.want)) {
				t.Fatalf("update %d: %s is %v, want %v", i, c.name, c.got, c.want)
			}
		}
	}
	online, target := maxDifference(net, plain.online), maxDifference(learner.target, plain.target)
	t.Logf("after 200 updates: online differs by %.1e, target by %.1e", online, target)
	if online > 2e-5 || target > 2e-5 {
		t.Errorf("after 200 updates the weights differ by %v, those of the target by %v", online, target)
	}
}

func TestActorEqualsPlainGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := ddqn.Spec{
			Features: rapid.IntRange(1, 9).Draw(t, "features"), Actions: rapid.IntRange(1, 9).Draw(t, "actions"),
			Objectives: rapid.IntRange(1, 4).Draw(t, "objectives"),
			Hidden:     rapid.SliceOfN(rapid.IntRange(1, 20), 0, 3).Draw(t, "hidden"),
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		net, err := ddqn.NewNetwork(spec, rng)
		if err != nil {
			t.Fatal(err)
		}
		for i := range net.Weights() { // biases that are not zero, too
			net.Weights()[i] += 0.1 * float32(rng.NormFloat64())
		}
		actor := ddqn.NewActor(net)
		rows := randomFloats(rand.New(rand.NewPCG(1, 1)), 3*spec.Features)
		q := actor.Q(nil, rows)
		plain := &twin{spec: spec}
		layers := twinLayers(net)
		for i := range 3 {
			_, want := plain.forward(layers, rows[i*spec.Features:][:spec.Features])
			for a := range want {
				for r, w := range want[a] {
					if got := float64(q[0]); math.Abs(got-w) > 1e-4*math.Max(1, math.Abs(w)) {
						t.Fatalf("row %d, action %d, objective %d: %v, want %v", i, a, r, got, w)
					}
					q = q[1:]
				}
			}
		}
	})
}
