package forward

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"evenkeel/internal/race"
	"evenkeel/train"
	"evenkeel/train/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The vectors of Random123's kat_vectors.
func TestPhilox(t *testing.T) {
	const all = 1<<32 - 1
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{all, all, all, all}, [2]uint32{all, all}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("%x: %x, want %x", c.counter, got, c.want)
		}
	}
}

// Both kinds of random entries have their mean, variance and fourth moment, and tensors do not go together.
func TestRandomEntriesAreWhatTheySay(t *testing.T) {
	for _, kind := range []struct {
		name       string
		wantFourth float64
		add        func(w []int32, tensor uint32)
	}{
		{"signs", 1, func(w []int32, tensor uint32) {
			addTerms(w, 7, tensor, 0, []term{{step: 5, direction: 2, plus: 1 << 12}})
		}},
		{"uniform numbers", 9.0 / 5, func(w []int32, tensor uint32) { addUniform(w, stream{key: keyOf(7), tensor: tensor}, 7094, 0) }}, // sqrt(3) 2^12
	} {
		w, other := make([]int32, 100_000), make([]int32, 100_000)
		kind.add(w, 3)
		sum, square, fourth := 0.0, 0.0, 0.0
		for _, x := range w {
			z := float64(x) / (1 << 12)
			sum, square, fourth = sum+z, square+z*z, fourth+z*z*z*z
		}
		n := float64(len(w))
		if math.Abs(sum/n) > 0.015 || math.Abs(square/n-1) > 0.02 || math.Abs(fourth/n-kind.wantFourth) > 0.1 {
			t.Errorf("%s: mean %v, variance %v, fourth moment %v", kind.name, sum/n, square/n, fourth/n)
		}
		kind.add(other, 4)
		same := 0.0
		for i := range w {
			same += float64(w[i]) * float64(other[i]) / (1 << 24)
		}
		if math.Abs(same/n) > 0.015 {
			t.Errorf("%s: two tensors go together by %v", kind.name, same/n)
		}
	}
}

// Directions of a step, and one direction of two steps, go together no more than by chance: as 4,096 signs do.
func TestDirectionsAreIndependent(t *testing.T) {
	along := func(step, direction uint32) []int32 {
		w := make([]int32, 100_000)
		addTerms(w, 7, 3, 0, []term{{step: step, direction: direction, plus: 1}})
		return w
	}
	first := along(5, 0)
	for _, other := range [][]int32{along(5, 1), along(5, 2), along(6, 0), along(6, 1)} {
		same := 0.0
		for i := range first {
			same += float64(first[i] * other[i])
		}
		if math.Abs(same/float64(len(first))) > 0.07 {
			t.Errorf("two directions go together by %v", same/float64(len(first)))
		}
	}
}

// Trying a direction and taking it back is the identity; moves add up to the same bits in any order, alone or
// together with what is taken back.
func TestMovesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shift := uint(rapid.IntRange(0, 6).Draw(t, "shift"))
		start := make([]int32, rapid.IntRange(1, 700).Draw(t, "len"))
		for i := range start {
			start[i] = rapid.Int32Range(-1<<29, 1<<29).Draw(t, "weight")
		}
		draw := func() term {
			return term{step: rapid.Uint32Range(0, 3).Draw(t, "step"), direction: rapid.Uint32Range(0, 2).Draw(t, "direction"),
				plus: rapid.Int64Range(-1<<20, 1<<20).Draw(t, "plus"), minus: rapid.Int64Range(-1<<20, 1<<20).Draw(t, "minus")}
		}
		w := slices.Clone(start)
		trial := draw()
		back := term{step: trial.step, direction: trial.direction, plus: trial.minus, minus: trial.plus}
		addTerms(w, 1, 2, shift, []term{trial})
		addTerms(w, 1, 2, shift, []term{back})
		if !slices.Equal(w, start) {
			t.Fatal("taking a trial back leaves a trace")
		}
		terms := []term{draw(), draw(), draw()}
		one, other, fused := slices.Clone(start), slices.Clone(start), slices.Clone(start)
		for i := range terms {
			addTerms(one, 1, 2, shift, terms[i:i+1])
			addTerms(other, 1, 2, shift, terms[2-i:3-i])
		}
		addTerms(fused, 1, 2, shift, []term{trial})
		addTerms(fused, 1, 2, shift, append(slices.Clone(terms), back))
		if !slices.Equal(one, other) || !slices.Equal(one, fused) {
			t.Fatal("the order of moves shows")
		}
	})
}

func digits(t testing.TB) (training, held data.Set) {
	t.Helper()
	all, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	training, held = data.Split(all, 5)
	return training, held
}

func testConfig(processors, directions, steps int) *Config {
	c := &Config{Processors: processors, Estimator: Paired, Directions: directions, Key: 11, Steps: steps, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "cosine"}
	for p := range processors / 2 {
		c.Examples = append(c.Examples, 3+p%2)
	}
	return c
}

func network3(t testing.TB) *train.Network {
	t.Helper()
	net, err := train.MLP(64, 16, 10)
	if err != nil {
		t.Fatal(err)
	}
	return net
}

// replicaOf is a replica of a run of a network.
func replicaOf(t testing.TB, c *Config, net *train.Network, examples int) *Replica {
	t.Helper()
	r, _ := replicaFrom(t, c, NewWeights(net, c.Key), examples)
	return r
}

// replicaFrom is a replica of a run that begins with weights, and its header.
func replicaFrom(t testing.TB, c *Config, w *Weights, examples int) (*Replica, []byte) {
	t.Helper()
	h := NewHeader(*c, Examples{Count: examples}, FromKey, w)
	encoded, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReplica(encoded, w)
	if err != nil {
		t.Fatal(err)
	}
	return r, encoded
}

// runAll runs all processors in one process; change may alter one before it runs.
func runAll(t testing.TB, c *Config, net *train.Network, memory *Memory, change func(p *Processor)) []*Processor {
	t.Helper()
	training, _ := digits(t)
	return runAllOn(t, c, net, training, memory, change)
}

// runAllOn is runAll on other examples.
func runAllOn(t testing.TB, c *Config, net *train.Network, training data.Set, memory *Memory, change func(p *Processor)) []*Processor {
	t.Helper()
	all := make([]*Processor, c.Processors)
	var wg sync.WaitGroup
	errs := make([]error, c.Processors)
	for rank := range all {
		p := &Processor{Replica: replicaOf(t, c, net, training.Len()), Rank: rank, Model: NewModel(net), Data: training, Bus: memory.Reader(rank), Patience: time.Hour}
		all[rank] = p
		if change != nil {
			change(p)
		}
		wg.Go(func() { errs[rank] = p.Run(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return all
}

// skipRaced skips, under the race detector, tests of numbers: what runs beside something else in them does so in shorter tests.
func skipRaced(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("no race that shorter tests do not have")
	}
}

func TestAllProcessorsAgree(t *testing.T) {
	net := network3(t)
	each := testConfig(6, 6, 40)
	each.Estimator, each.Examples = Each, []int{4, 4, 4}
	for _, c := range []*Config{testConfig(2, 1, 40), testConfig(8, 1, 40), testConfig(8, 4, 40), testConfig(12, 2, 20), each} {
		c.Key = 12 // two of a hundred keys have a spike by chance, which leaves a pair out
		memory := NewMemory()
		all := runAll(t, c, net, memory, nil)
		want := all[0].Weights.Hash()
		if want == NewWeights(net, c.Key).Hash() {
			t.Fatal("nothing was learnt")
		}
		for _, p := range all {
			if got := p.Weights.Hash(); got != want {
				t.Errorf("%d processors, %d directions: processor %d has %s, processor 0 %s", c.Processors, c.Directions, p.Rank, got, want)
			}
			s := p.Stats()
			steps := int64(c.Steps)
			if s.Sent != 16*steps || s.Received != 16*steps*int64(c.Processors-1) || s.Missed+s.Late+sum(s.Absent)+sum(s.LeftOut) != 0 || len(s.Ignored) > 0 || s.Forwards != steps {
				t.Errorf("processor %d: %+v", p.Rank, s)
			}
		}
		// One that comes when all is over finds the same.
		late := &Processor{Replica: replicaOf(t, c, net, all[0].Data.Len()), Rank: 1, Model: nil, Data: all[0].Data, Bus: memory.Reader(1)}
		if err := late.Run(t.Context()); err != nil || late.Weights.Hash() != want {
			t.Errorf("coming late: %v, %s, want %s", err, late.Weights.Hash(), want)
		}
	}
}

func sum(all []int64) (n int64) {
	for _, x := range all {
		n += x
	}
	return n
}

// refusing loses the connection for good after some frames.
type refusing struct {
	Bus
	left int
}

var errGone = errors.New("gone")

func (r *refusing) Publish(ctx context.Context, frame []byte) error {
	if r.left--; r.left < 0 {
		return errGone
	}
	return r.Bus.Publish(ctx, frame)
}

// A processor that dies takes its pair out; the others go on; it comes back and ends with the same weights.
func TestDeathAndReturn(t *testing.T) {
	net, c := network3(t), testConfig(6, 3, 200)
	training, _ := digits(t)
	memory := NewMemory()
	all := make([]*Processor, c.Processors)
	var wg sync.WaitGroup
	errs := make([]error, c.Processors)
	goneOn := make(chan struct{}) // the others decided ten steps without it
	start := func(rank int, pause time.Duration) {
		p := &Processor{Replica: replicaOf(t, c, net, training.Len()), Rank: rank, Model: NewModel(net), Data: training, Bus: memory.Reader(rank), Patience: 30 * time.Millisecond,
			OnStep: func(step int, _ Commit) error {
				if time.Sleep(pause); rank == 0 && step == 30 {
					close(goneOn)
				}
				return nil
			}}
		all[rank] = p
		wg.Go(func() { errs[rank] = p.Run(t.Context()) })
	}
	for rank := range all {
		if rank != 3 {
			start(rank, 2*time.Millisecond)
		}
	}
	dead := &Processor{Replica: replicaOf(t, c, net, training.Len()), Rank: 3, Model: NewModel(net), Data: training, Bus: &refusing{memory.Reader(3), 20}}
	if err := dead.Run(t.Context()); !errors.Is(err, errGone) {
		t.Fatalf("%v", err)
	}
	<-goneOn
	start(3, 0)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s := all[2].Stats()
	if s.Missed < 3 || s.Missed != s.Absent[1] || s.Late == 0 {
		t.Errorf("the pair of the dead processor: %+v", s)
	}
	if s.Missed > 150 {
		t.Error("the pair never came back")
	}
	for _, p := range all {
		if got, want := p.Weights.Hash(), all[0].Weights.Hash(); got != want {
			t.Errorf("processor %d has %s, processor 0 %s", p.Rank, got, want)
		}
	}
}

// Frames twice, from nowhere, of other steps and torn ones change nothing.
func TestNoiseOnTheWire(t *testing.T) {
	net, c := network3(t), testConfig(4, 2, 30)
	want := runAll(t, c, net, NewMemory(), nil)[0].Weights.Hash()
	memory := NewMemory()
	rng := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	all := runAll(t, c, net, memory, func(p *Processor) {
		if p.Rank == 1 {
			p.Bus = &noisy{p.Bus, rng, &mu}
		}
	})
	for _, p := range all {
		if p.Weights.Hash() != want {
			t.Errorf("processor %d has other weights", p.Rank)
		}
		if s := p.Stats(); s.Ignored[1] < 30 || len(s.Ignored) != 1 {
			t.Errorf("ignored, by rank: %v", s.Ignored)
		}
	}
}

type noisy struct {
	Bus
	rng *rand.Rand
	mu  *sync.Mutex
}

func (n *noisy) Publish(ctx context.Context, frame []byte) error {
	if err := n.Bus.Publish(ctx, frame); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	f, _ := DecodeFrame(frame)
	for _, other := range []Frame{f, {Step: f.Step + 3, Rank: 0}, {Step: f.Step, Rank: 99}, {Step: f.Step, Rank: f.Rank, Losses: [2]float32{9, 9}}, {Step: f.Step - 1, Rank: f.Rank, GoOn: true}, {Step: f.Step, Rank: 2, GoOn: true}} {
		if n.rng.IntN(2) == 0 {
			if err := n.Bus.Publish(ctx, other.Encode(nil)); err != nil {
				return err
			}
		}
	}
	return n.Bus.Publish(ctx, make([]byte, FrameBytes)) // of kind 0
}

// broken gives losses that are no numbers on some steps.
type broken struct {
	Model
	n int
}

func (b *broken) Losses(w *Weights, batch train.Batch) ([2]float32, error) {
	l, err := b.Model.Losses(w, batch)
	if b.n++; b.n%3 == 0 {
		l[1] = float32(math.NaN())
	}
	return l, err
}

func TestLossesThatAreNoNumbers(t *testing.T) {
	net, c := network3(t), testConfig(4, 2, 30)
	all := runAll(t, c, net, NewMemory(), func(p *Processor) {
		if p.Rank == 2 {
			p.Model = &broken{Model: p.Model}
		}
	})
	for _, p := range all {
		if p.Weights.Hash() != all[0].Weights.Hash() || p.Stats().LeftOut[1] != 10 || p.Stats().LeftOut[0] != 0 || p.Stats().Missed != 0 {
			t.Errorf("processor %d: %+v, weights %s", p.Rank, p.Stats(), p.Weights.Hash())
		}
	}
}

// spiky gives a value instead of a loss in one of a hundred steps.
type spiky struct {
	Model
	n, first int
	value    float32
}

func (s *spiky) Losses(w *Weights, batch train.Batch) ([2]float32, error) {
	l, err := s.Model.Losses(w, batch)
	if s.n%100 == s.first && s.value > 0 {
		l[0] = s.value
	}
	s.n++
	return l, err
}

// Outliers of one pair in one of a hundred steps, the first or a later one, cost no more than chance: the loss at the end is within three standard deviations of six undisturbed ones.
func TestOutliersDoNotEndLearning(t *testing.T) {
	skipRaced(t)
	net := network3(t)
	training, held := digits(t)
	c := testConfig(8, 8, 1024)
	c.Estimator, c.Examples, c.Clip, c.Guard = Each, []int{8, 8, 8, 8}, 3, true
	c.LearningRate = c.DefaultRate(1210)
	end := func(key uint64, first int, value float32) float64 {
		c.Key = key
		p := runAllOn(t, c, net, training, NewMemory(), func(p *Processor) {
			if p.Rank == 3 {
				p.Model = &spiky{p.Model, 0, first, value}
			}
		})[0]
		if got := p.Stats().LeftOut[1]; value > 0 && (got < 9 || got > 12) {
			t.Errorf("%g, from step %d: pair 1 was left out %d times", value, first, got)
		}
		_, loss, err := Evaluate(net, p.Weights, held)
		if err != nil {
			t.Fatal(err)
		}
		return loss
	}
	sum, squares := 0.0, 0.0
	for key := range uint64(6) {
		l := end(10+key, 0, 0)
		sum, squares = sum+l, squares+l*l
	}
	most := sum/6 + 3*math.Sqrt((squares-sum*sum/6)/5)
	t.Logf("undisturbed: %.3f in the mean, at most %.3f", sum/6, most)
	for i, value := range []float32{30, 1e3, 1e6, 1e30} {
		for _, first := range []int{0, 50} {
			got := end(10+uint64(i), first, value)
			if t.Logf("outliers of %g from step %d: %.3f", value, first, got); got > most {
				t.Errorf("outliers of %g from step %d: a loss of %v; at most %v without", value, first, got, most)
			}
		}
	}
}

func TestConfigValidate(t *testing.T) {
	c := Config{Processors: 3, Estimator: Paired, Epsilon: math.NaN(), LearningRate: math.Inf(1), Schedule: "steps", Clip: -1, Examples: []int{0}}
	err := c.Validate()
	if !errors.Is(err, ErrConfig) {
		t.Fatal(err)
	}
	for _, want := range []string{"processors is 3", "directions is 0", "epsilon is NaN", "learning_rate is +Inf", `schedule is "steps"`, "clip is -1", "examples[0] is 0", "steps is 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told: %v", want, err)
		}
	}
}

// It learns the digits, more quickly with more directions.
func TestLearnsDigits(t *testing.T) {
	skipRaced(t)
	net := network3(t)
	_, held := digits(t)
	right := func(c *Config) float64 {
		w := runAll(t, c, net, NewMemory(), nil)[0].Weights
		acc, _, err := Evaluate(net, w, held)
		if err != nil {
			t.Fatal(err)
		}
		return acc
	}
	few, many := testConfig(2, 1, 600), testConfig(8, 4, 600)
	few.LearningRate, many.LearningRate = 0.01, 0.03 // the more directions, the larger may it be
	for p := range many.Examples {
		many.Examples[p] = 16
	}
	few.Examples[0] = 16
	a, b := right(few), right(many)
	t.Logf("accuracy %.3f with one direction, %.3f with four", a, b)
	if a < 0.25 || b < 0.6 || b <= a {
		t.Errorf("accuracy %.3f with one direction, %.3f with four", a, b)
	}
}
