package forward

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"evenkeel/train"
	"evenkeel/train/data"
)

var (
	jobs  = flag.Int("jobs", 10, "random jobs of TestDefaultsDoNotEndAboveTheirStart")
	again = flag.Bool("again", false, "each of them once more, from the weights that it has then")
)

// Random jobs of five kinds of networks and data, with 2 to 8 processors and 1 to 64 examples, do not end above their start by default settings, from random
// weights: the mean loss on all that they train on. go test ./forward -run DefaultsDoNotEnd -jobs 300 -timeout 2h
func TestDefaultsDoNotEndAboveTheirStart(t *testing.T) {
	skipRaced(t)
	text, err := os.ReadFile("../docs/reference/forward-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for job := range *jobs {
		rng := rand.New(rand.NewPCG(uint64(job), 1))
		set, net, err := randomJob(job, string(text), rng)
		if err != nil {
			t.Fatal(err)
		}
		c := testConfig(2*(1+rng.IntN(4)), 1, 256)
		c.Key, c.Clip, c.Guard = uint64(job), 3, true
		if c.Directions = c.Processors / 2; rng.IntN(4) > 0 {
			c.Estimator, c.Directions = Each, c.Processors
		}
		examples := int(math.Exp2(6 * rng.Float64()))
		for p := range c.Examples {
			c.Examples[p] = examples
		}
		w := NewWeights(net, c.Key)
		c.LearningRate = c.DefaultRate(w.Len())
		rounds := 1
		if *again {
			rounds = 2
		}
		for round := range rounds {
			_, before, err := Evaluate(net, w, set)
			if err != nil {
				t.Fatal(err)
			}
			w = runAllOn(t, c, net, set, NewMemory(), func(p *Processor) { p.Replica, _ = replicaFrom(t, c, w.Clone(), set.Len()) })[0].Weights
			_, after, err := Evaluate(net, w, set)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("job %d, %d: %d weights, %d processors, %s, %d examples: loss %.4f, before %.4f", job, round, w.Len(), c.Processors, c.Estimator, examples, after, before)
			if !(after < before) {
				t.Errorf("job %d, %d ended above its start", job, round)
			}
			c.Key++
		}
	}
}

// randomJob draws data and a network, of the kind of the job's number.
func randomJob(job int, text string, rng *rand.Rand) (data.Set, *train.Network, error) {
	wide := 16 + rng.IntN(185)
	digits, err := data.Digits()
	if err != nil {
		return nil, nil, err
	}
	switch job % 5 {
	case 0:
		net, err := train.MLP(64, wide, 10)
		return digits, net, err
	case 1:
		sizes := []int{64}
		for range 3 + rng.IntN(4) {
			sizes = append(sizes, wide)
		}
		net, err := train.MLP(append(sizes, 10)...)
		return digits, net, err
	case 2:
		net, err := train.Convnet(8, 8, 1, 10, 4, 8)
		return digits, net, err
	case 3:
		set, err := randomTable(rng)
		if err != nil {
			return nil, nil, err
		}
		inputs, _, classes, _ := set.Shape()
		net, err := train.MLP(inputs, wide, classes)
		return set, net, err
	}
	set, err := data.NewText(strings.NewReader(text), "text", 16)
	if err != nil {
		return nil, nil, err
	}
	_, _, _, tokens := set.Shape()
	net, err := train.Transformer(train.TransformerConfig{Tokens: tokens, Length: 16, Size: 16, Heads: 4, Blocks: 1 + rng.IntN(2)})
	return set, net, err
}

// randomTable draws clusters, and gives up to 30% of their points another label.
func randomTable(rng *rand.Rand) (data.Set, error) {
	columns, classes, wrong := 2+rng.IntN(39), 2+rng.IntN(6), 0.3*rng.Float64()
	centres := make([][]float64, classes)
	for k := range centres {
		for range columns {
			centres[k] = append(centres[k], rng.NormFloat64())
		}
	}
	var b strings.Builder
	for c := range columns {
		fmt.Fprintf(&b, "c%d,", c)
	}
	b.WriteString("class\n")
	for row := range 150 + rng.IntN(1851) {
		k := row % classes
		for _, x := range centres[k] {
			fmt.Fprintf(&b, "%.4f,", x+rng.NormFloat64())
		}
		if rng.Float64() < wrong {
			k = rng.IntN(classes)
		}
		fmt.Fprintf(&b, "%d\n", k)
	}
	return data.CSV(strings.NewReader(b.String()), "table.csv")
}
