package train_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"evenkeel/internal/race"
	"evenkeel/train"
	"evenkeel/train/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var adam = train.Optimizer{Method: train.AdamW, Rate: 0.003}

func trainer(t testing.TB, net *train.Network, d train.Data, c train.Config) *train.Trainer {
	t.Helper()
	if c.Optimizer.Method == "" {
		c.Optimizer = adam
	}
	tr, err := train.New(net, d, c)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// run trains some steps and returns the losses.
func run(t testing.TB, tr *train.Trainer, steps int) []float64 {
	t.Helper()
	var losses []float64
	for range steps {
		loss, err := tr.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	return losses
}

// bits are all weights and moments.
func bits(tr *train.Trainer) []byte {
	var b []byte
	for _, a := range tr.Arrays() {
		b = append(b, a.Data...)
	}
	return b
}

func digits(t testing.TB) (training, held *data.Part) {
	t.Helper()
	d, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	return data.Split(d, 5)
}

func must(net *train.Network, err error) *train.Network {
	if err != nil {
		panic(err)
	}
	return net
}

// Nodes with micro-batches of different sizes do what one node does with the whole batch.
func TestUnevenMicroBatches(t *testing.T) {
	training, _ := digits(t)
	for name, net := range map[string]*train.Network{
		"mlp": must(train.MLP(64, 20, 10)), "convnet": must(train.Convnet(8, 8, 1, 10, 4, 6)),
	} {
		for _, o := range []train.Optimizer{{Method: train.SGD, Rate: 0.1}, {Method: train.Momentum, Rate: 0.03}, {Method: train.AdamW, Rate: 1e-3}} {
			one := trainer(t, net, training, train.Config{MicroBatches: []int{24}, Optimizer: o})
			many := trainer(t, net, training, train.Config{MicroBatches: []int{1, 13, 3, 7}, Optimizer: o})
			a, b := run(t, one, 8), run(t, many, 8)
			for i := range a {
				if math.Abs(a[i]-b[i]) > 2e-5*(1+a[i]) {
					t.Fatalf("%s, %s: losses %v and %v", name, o.Method, a, b)
				}
			}
			for i, p := range net.Params() {
				for j, w := range one.Weights().Params[i] {
					if v := many.Weights().Params[i][j]; math.Abs(float64(w-v)) > 3e-4 {
						t.Fatalf("%s, %s: %s[%d] is %v with one node, %v with four", name, o.Method, p.Name, j, w, v)
					}
				}
			}
		}
	}
}

// The bits depend neither on the schedule, nor on the processors, nor on how slow links are.
func TestScheduleBits(t *testing.T) {
	training, _ := digits(t)
	net := must(train.MLP(64, 33, 20, 10))
	c := train.Config{MicroBatches: []int{9, 4, 6}, Seed: 5}
	reference := trainer(t, net, training, c)
	losses := run(t, reference, 6)
	for _, change := range []struct {
		name  string
		procs int
		set   func(*train.Config)
	}{
		{"sequential", 0, func(c *train.Config) { c.Sequential = true }},
		{"one processor", 1, func(*train.Config) {}},
		{"four processors", 4, func(c *train.Config) { c.Timeline = true }},
		{"slow links", 0, func(c *train.Config) { c.LinkBytesPerSecond = 20e6 }},
	} {
		was := runtime.GOMAXPROCS(change.procs)
		other := c
		change.set(&other)
		tr := trainer(t, net, training, other)
		if got := run(t, tr, 6); !slices.Equal(got, losses) || !slices.Equal(bits(tr), bits(reference)) {
			t.Errorf("%s: losses %v, want %v", change.name, got, losses)
		}
		runtime.GOMAXPROCS(was)
	}
	c.Seed++
	if other := trainer(t, net, training, c); slices.Equal(run(t, other, 6), losses) {
		t.Error("another seed gives the same losses")
	}
}

// It learns: more of the digits that were held out than a linear model would have right (95 %), and text better than
// the frequencies of its characters tell.
func TestLearns(t *testing.T) {
	training, held := digits(t)
	for name, c := range map[string]struct {
		net   *train.Network
		steps int
	}{"mlp": {must(train.MLP(64, 48, 10)), 600}, "convnet": {must(train.Convnet(8, 8, 1, 10, 8, 16)), 120}} {
		tr := trainer(t, c.net, training, train.Config{MicroBatches: []int{20, 12}, Seed: 2, Optimizer: train.Optimizer{Method: train.AdamW, Rate: 0.005}})
		run(t, tr, c.steps)
		right, _, err := tr.Evaluate(held)
		if share := float64(right) / float64(held.Len()); err != nil || share < 0.95 {
			t.Errorf("%s: %.3f of the digits held out are right, %v", name, share, err)
		}
	}
}

// A transformer learns the text that each character follows from the one before it, and nothing else.
func TestLearnsText(t *testing.T) {
	text, err := data.NewText(strings.NewReader(strings.Repeat("abcdefgh", 60)), "text", 8)
	if err != nil {
		t.Fatal(err)
	}
	net := must(train.Transformer(train.TransformerConfig{Tokens: 8, Length: 8, Size: 16, Heads: 2, Blocks: 1}))
	tr := trainer(t, net, text, train.Config{MicroBatches: []int{5, 3}, Optimizer: train.Optimizer{Method: train.AdamW, Rate: 0.01}})
	losses := run(t, tr, 80)
	if first, last := losses[0], losses[79]; math.Abs(first-math.Log(8)) > 0.6 || last > 0.1 {
		t.Errorf("loss from %v to %v; want from ln 8 to almost 0", first, last)
	}
}

func TestTimeline(t *testing.T) {
	training, _ := digits(t)
	tr := trainer(t, must(train.MLP(64, 30, 10)), training, train.Config{MicroBatches: []int{8, 8}, Timeline: true})
	run(t, tr, 2)
	count := map[train.Activity]int{}
	last := map[[2]any]train.Span{}
	for _, s := range tr.Timeline() {
		count[s.Activity]++
		if s.End < s.Begin || s.Step < 1 || s.Step > 2 {
			t.Errorf("%+v", s)
		}
		if s.Activity == train.Exchange { // in the order of the layers, from the last one
			key := [2]any{s.Node, s.Step}
			if before, ok := last[key]; ok && (s.Begin < before.End || s.Layer >= before.Layer) {
				t.Errorf("%+v after %+v", s, before)
			}
			last[key] = s
		}
	}
	for a, want := range map[train.Activity]int{train.Forward: 4, train.Backward: 12, train.Exchange: 8, train.Update: 8, train.Save: 0} {
		if count[a] != want {
			t.Errorf("%d spans of %s, want %d", count[a], a, want)
		}
	}
	if len(tr.Timeline()) > 0 {
		t.Error("spans told twice")
	}
}

// A pass allocates nothing.
func TestLossAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the pool of train/layer allocates under the race detector")
	}
	net := must(train.Transformer(train.TransformerConfig{Tokens: 20, Length: 8, Size: 8, Heads: 2, Blocks: 2}))
	p, err := net.NewPass(2, false)
	if err != nil {
		t.Fatal(err)
	}
	w := net.NewValues()
	b := train.Batch{Inputs: make([]float32, 16), Targets: make([]int32, 16)}
	if n := testing.AllocsPerRun(10, func() {
		if _, err := p.Loss(w, b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
