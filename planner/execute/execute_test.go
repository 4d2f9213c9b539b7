package execute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"evenkeel/planner"
	"evenkeel/train"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy is made-up samples for a network.
type toy struct {
	net    *train.Network
	tokens int // 0: inputs are any numbers
}

func (d toy) Len() int { return 50 }

func (d toy) Sample(i int, inputs []float32, targets []int32) {
	rng := rand.New(rand.NewPCG(uint64(i), 9))
	for j := range inputs {
		if d.tokens > 0 {
			inputs[j] = float32(rng.IntN(d.tokens))
		} else {
			inputs[j] = float32(rng.NormFloat64())
		}
	}
	for j := range targets {
		targets[j] = int32((int(math.Abs(float64(inputs[j%len(inputs)]))) + j) % d.net.Classes())
	}
}

func mlp(t testing.TB) toy {
	t.Helper()
	n, err := train.MLP(6, 9, 8, 7, 4)
	if err != nil {
		t.Fatal(err)
	}
	return toy{n, 0}
}

func transformer(t testing.TB) toy {
	t.Helper()
	n, err := train.Transformer(train.TransformerConfig{Tokens: 7, Length: 5, Size: 16, Heads: 2, Blocks: 3})
	if err != nil {
		t.Fatal(err)
	}
	return toy{n, 7}
}

// planOf makes a plan: ends[k] is the layer after stage k's last, shares[k] its replicas' samples; a stage may be left
// out of shares. Units in again are checkpointed.
func planOf(global, micro int, ends []int, shares map[int][]int, again ...int) *planner.Plan {
	p := &planner.Plan{Version: planner.Version, Model: "toy", GlobalBatch: global, MicroBatch: micro, Unused: []planner.Devices{}}
	from, device := 0, 0
	for k, to := range ends {
		split := shares[k]
		if split == nil {
			split = []int{micro}
		}
		s := planner.Stage{From: from, To: to, Groups: []planner.Group{{Devices: planner.Devices{Device: "cpu", First: device, Count: len(split)}, Tensor: 1, MicroBatches: split}}}
		for u := from; u < to; u++ {
			s.Strategies = append(s.Strategies, planner.Strategy{From: u, To: u + 1, Sharding: planner.Replicated, Checkpoint: slices.Contains(again, u)})
		}
		p.Stages = append(p.Stages, s)
		from, device = to, device+len(split)
	}
	return p
}

var adam = train.Optimizer{Method: train.AdamW, Rate: 0.001}

func jobOf(t testing.TB, p *planner.Plan, n *train.Network) *Job {
	t.Helper()
	j, err := NewJob(p, n)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// fleet runs all stages in this process, over TLS on loopback. Whoever edits a server or client first is change.
type fleet struct {
	server  *Server
	clients []*Client
}

func newFleet(t testing.TB, j *Job, d train.Data, steps int) *fleet {
	t.Helper()
	dir, stages := t.TempDir(), len(j.Plan.Stages)
	if err := MakeKeys(dir, stages, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	f := &fleet{server: &Server{Job: j, Training: Training{Optimizer: adam, Seed: 5, Steps: steps}, Data: d, Keys: keysOf(t, dir, 0), Listener: listen(t)}}
	for k := 1; k < stages; k++ {
		c := &Client{Job: j, Stage: k, Keys: keysOf(t, dir, k), Server: f.server.Listener.Addr().String()}
		if k < stages-1 {
			c.Listener = listen(t)
		}
		f.clients = append(f.clients, c)
	}
	return f
}

func keysOf(t testing.TB, dir string, stage int) *Keys {
	t.Helper()
	k, err := LoadKeys(dir, stage, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run returns the result, the server's error first and each client's at its stage.
func (f *fleet) run(ctx context.Context) (*Result, []error) {
	errs := make([]error, len(f.clients)+1)
	var all sync.WaitGroup
	for _, c := range f.clients {
		all.Go(func() { _, errs[c.Stage] = c.Run(ctx) })
	}
	r, err := f.server.Run(ctx)
	errs[0] = err
	all.Wait()
	return r, errs
}

// whole trains the unpartitioned network on the plan's micro-batches. Gradients are summed as the plan's replicas sum
// them, or, without splits, micro-batch after micro-batch.
func whole(t testing.TB, d toy, p *planner.Plan, splits bool, o train.Optimizer, steps int) []float64 {
	t.Helper()
	n, units := d.net, unitsOf(d.net)
	order, err := train.NewOrder(d.Len(), 5)
	if err != nil {
		t.Fatal(err)
	}
	values := func() *train.Values {
		v := n.NewValues()
		return v
	}
	w, total, sum, g := values(), values(), values(), values()
	moments := []*train.Values{values(), values()}[:o.Moments()]
	n.Initialize(w, rand.New(rand.NewPCG(5, 0)))
	width, positions, scale := n.InputSize(), n.Positions(), 1/float64(p.GlobalBatch*n.Positions())
	b := train.Batch{Inputs: make([]float32, p.GlobalBatch*width), Targets: make([]int32, p.GlobalBatch*positions)}
	// gradients of samples from..from+count-1 of every micro-batch, all layers; the loss of these.
	gradients := func(from, count int) (losses []float64) {
		pass, err := n.NewPass(count, true)
		if err != nil {
			t.Fatal(err)
		}
		for m := range p.MicroBatches() {
			at := m*p.MicroBatch + from
			l, err := pass.Forward(w, train.Batch{Inputs: b.Inputs[at*width:][:count*width], Targets: b.Targets[at*positions:][:count*positions]}, scale)
			if err != nil {
				t.Fatal(err)
			}
			losses = append(losses, l)
			for l := n.Layers() - 1; l >= 0; l-- {
				pass.Backward(l, w, g)
				if m == 0 {
					copy(sum.Layers[l], g.Layers[l])
				} else {
					add(sum.Layers[l], g.Layers[l])
				}
			}
		}
		return losses
	}
	var losses []float64
	for step := range steps {
		for i := range p.GlobalBatch {
			k, err := order.Next()
			if err != nil {
				t.Fatal(err)
			}
			d.Sample(k, b.Inputs[i*width:][:width], b.Targets[i*positions:][:positions])
		}
		of := make([]float64, p.MicroBatches())
		for _, s := range p.Stages {
			shares, from := []int{p.MicroBatch}, 0
			if splits {
				shares = s.Groups[0].MicroBatches
			}
			clear(of) // the last stage's count
			for r, count := range shares {
				for m, l := range gradients(from, count) {
					of[m] += l
				}
				for l := units[s.From].From; l < units[s.To-1].To; l++ {
					if r == 0 {
						copy(total.Layers[l], sum.Layers[l])
					} else {
						add(total.Layers[l], sum.Layers[l])
					}
				}
				from += count
			}
		}
		loss := 0.0
		for _, l := range of {
			loss += l
		}
		for l, v := range total.Layers {
			if v != nil {
				var all [][]float32
				for _, m := range moments {
					all = append(all, m.Layers[l])
				}
				o.Update(uint64(step+1), w.Layers[l], v, all...)
			}
		}
		losses = append(losses, loss)
	}
	return losses
}

// apart is the largest relative difference.
func apart(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	most := 0.0
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i])/math.Abs(b[i]))
	}
	return most
}

// Partitioned training has the losses of unpartitioned training: the same bits, replicas or not, where gradients are
// summed in the same order, and to 1e-5 where they are not: without replicas, or by a trainer that has the batch in one
// piece.
func TestLossesEqual(t *testing.T) {
	const steps = 60
	for _, c := range []struct {
		name string
		toy  toy
		plan *planner.Plan
	}{
		{"mlp, 1 stage", mlp(t), planOf(12, 3, []int{4}, nil)},
		{"mlp, 2 stages", mlp(t), planOf(12, 3, []int{1, 4}, nil)},
		{"mlp, 4 stages", mlp(t), planOf(12, 3, []int{1, 2, 3, 4}, nil)},
		{"mlp, fewer micro-batches than stages", mlp(t), planOf(6, 3, []int{1, 2, 3, 4}, nil)},
		{"mlp, checkpoints", mlp(t), planOf(12, 3, []int{2, 4}, nil, 0, 1, 3)},
		{"mlp, all checkpointed", mlp(t), planOf(12, 3, []int{2, 3, 4}, nil, 0, 1, 2, 3)},
		{"mlp, replicas", mlp(t), planOf(12, 6, []int{2, 4}, map[int][]int{0: {4, 2}, 1: {1, 3, 2}}, 1)},
		{"transformer, 1 stage", transformer(t), planOf(8, 2, []int{6}, nil, 2)},
		{"transformer, 2 stages", transformer(t), planOf(8, 2, []int{2, 6}, nil)},
		{"transformer, 3 stages, checkpoints", transformer(t), planOf(8, 2, []int{2, 4, 6}, nil, 0, 2, 3, 5)},
		{"transformer, 4 stages, replicas", transformer(t), planOf(8, 4, []int{1, 2, 4, 6}, map[int][]int{1: {3, 1}, 2: {1, 1, 2}}, 1, 3)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := jobOf(t, c.plan, c.toy.net)
			r, errs := newFleet(t, j, c.toy, steps).run(t.Context())
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if want := whole(t, c.toy, c.plan, true, adam, steps); !slices.Equal(r.Losses, want) {
				t.Errorf("losses differ by %g from unpartitioned training:\n%v\n%v", apart(r.Losses, want), r.Losses, want)
			}
			check(t, j, r, steps)

			if d := apart(r.Losses, whole(t, c.toy, c.plan, false, adam, steps)); d > 1e-5 {
				t.Errorf("losses differ by %g from unpartitioned training without replicas", d)
			}
			trainer, err := train.New(c.toy.net, c.toy, train.Config{MicroBatches: []int{c.plan.GlobalBatch}, Optimizer: adam, Seed: 5})
			if err != nil {
				t.Fatal(err)
			}
			var losses []float64
			for range steps {
				l, err := trainer.Step(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				losses = append(losses, l)
			}
			if d := apart(r.Losses, losses); d > 1e-5 {
				t.Errorf("losses differ by %g from a trainer's", d)
			}
			if r.Losses[steps-1] >= r.Losses[0] {
				t.Errorf("it learns nothing: %v", r.Losses)
			}
		})
	}
}

// check looks at what was measured.
func check(t *testing.T, j *Job, r *Result, steps int) {
	t.Helper()
	if len(r.Seconds) != steps || r.Median <= 0 || r.Predicted <= 0 || len(r.Stages) != len(j.Plan.Stages) {
		t.Fatalf("measured %+v", r)
	}
	for k, m := range r.Stages {
		var payload int64
		if k > 0 {
			payload += int64(4 * j.width(k) * j.Plan.GlobalBatch * steps)
		}
		if k < len(r.Stages)-1 {
			payload += int64(4 * j.width(k+1) * j.Plan.GlobalBatch * steps)
		}
		if m.Stage != k || m.Payload != payload || m.Wire < payload || m.Iterations != steps-1 || m.Idle() < 0 || m.Idle() > 1 {
			t.Errorf("stage %d measured %+v; want %d bytes", k, m, payload)
		}
	}
}

// Units are what transformers and MLPs are thought of as.
func TestUnits(t *testing.T) {
	names := func(d toy) string {
		all := ""
		next := 0
		for _, u := range unitsOf(d.net) {
			all += fmt.Sprintf("%s[%d:%d] ", u.Name, u.From, u.To)
			if u.From != next {
				t.Errorf("a gap before layer %d", u.From)
			}
			next = u.To
		}
		if next != d.net.Layers() {
			t.Errorf("units end at %d of %d", next, d.net.Layers())
		}
		return all
	}
	if got, want := names(mlp(t)), "dense1[0:2] dense2[2:4] dense3[4:6] dense4[6:7] "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := names(transformer(t)), "embedding[0:1] block1[1:11] block2[11:21] block3[21:31] norm[31:32] predict[32:33] "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
