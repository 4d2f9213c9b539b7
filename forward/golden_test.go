package forward

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"evenkeel/train/data"
)

var update = flag.Bool("update", false, "write the golden vectors anew")

// golden is internal/vectors/forward-golden.json: docs/reference/forward-protocol.md says what it holds.
type golden struct {
	Parts goldenParts `json:"parts"`
	Runs  []goldenRun `json:"runs"`
}

type goldenParts struct {
	Philox   []goldenPhilox   `json:"philox"`
	Examples []goldenExamples `json:"examples"`
	Rates    []goldenRates    `json:"rates"`
}

type goldenPhilox struct {
	Counter [4]uint32 `json:"counter"`
	Key     uint64    `json:"key"`
	Words   [4]uint32 `json:"words"`
}

type goldenExamples struct {
	Key    uint64 `json:"key"`
	Count  int    `json:"count"`
	Sizes  []int  `json:"sizes"`
	Shared bool   `json:"shared"`
	Step   int    `json:"step"`
	Pair   int    `json:"pair"`
	Picked []int  `json:"examples"`
}

type goldenRates struct {
	Schedule string   `json:"schedule"`
	Rate     float64  `json:"rate"`
	Steps    int      `json:"steps"`
	Rates    []string `json:"rates"`
}

type goldenRun struct {
	Name     string          `json:"name"`
	Header   string          `json:"header"`
	Initial  [][]int32       `json:"initial,omitempty"` // entries, where they come from a file
	Messages []goldenMessage `json:"messages"`
	Blocks   []string        `json:"blocks"`
	Weights  string          `json:"weights"`
	Entries  [][]int32       `json:"entries"`
	Trials   []string        `json:"trials"`          // by rank: hash of the weights under its trial of step 0
	Fails    uint64          `json:"fails,omitempty"` // position of the message upon which an entry is too large
}

type goldenMessage struct {
	Subject string `json:"subject"`
	Data    string `json:"data"`
}

// script is a bus with given messages.
type script struct {
	messages []Message
	at       int
	sent     []int // numbers of blocks
}

func (s *script) Publish(context.Context, []byte) error { return nil }

func (s *script) PublishBlock(_ context.Context, number int, b []byte) error {
	s.sent = append(s.sent, number)
	s.messages = append(s.messages, Message{Block: b})
	return nil
}

func (s *script) Next(ctx context.Context) (Message, error) {
	if !s.Behind() {
		<-ctx.Done()
		return Message{}, ctx.Err()
	}
	s.at++
	return s.messages[s.at-1], nil
}

func (s *script) Since() time.Time { return time.Time{} }

func (s *script) Behind() bool { return s.at < len(s.messages) }

// numbers are so many examples without content.
type numbers struct {
	data.Set
	count int
}

func (n numbers) Len() int { return n.count }

// play gives a run's messages to a processor that is rank 0 and has sent its frames before.
func play(t *testing.T, encoded []byte, w *Weights, messages []Message) (blocks [][]byte, r *Replica, fails uint64) {
	t.Helper()
	r, err := NewReplica(encoded, w)
	if err != nil {
		t.Fatal(err)
	}
	p := &Processor{Replica: r, Data: numbers{count: r.Header.Data.Count}, Bus: &script{messages: messages}, Patience: math.MaxInt64}
	p.OnBlock = func(_ *Block, b []byte) error {
		blocks = append(blocks, b)
		return nil
	}
	if err := p.Run(t.Context()); errors.Is(err, ErrOverflow) {
		fails = p.at
	} else if err != nil {
		t.Fatal(err)
	}
	return blocks, r, fails
}

// plot is what happens in a story.
type plot struct {
	seed  uint64
	stop  int                           // the step in which somebody asks to stop; 0: nobody does
	loss  func(step int) float64        // about
	noise float64                       // of losses; 0: a hundredth
	wild  bool                          // the two inputs' losses are of unlike sizes, so that sums depend on their order
	large bool                          // those of even ranks are so large that the sum of a step depends on its order
	edges []edge                        // what steps make of some entries
	after func(step int, commit Commit) // called after a step
}

// edge is a value that an entry has after a step. With falls it is beyond that value a step before.
type edge struct {
	step  int
	value int32
	falls bool
}

// toEdges sets first entries of a tensor from which steps take them to edges. after has by how much each step has moved them. They are
// within the limit after other steps that check them.
func toEdges(t *testing.T, first []int32, after [][]int32, edges []edge) {
	t.Helper()
	for _, e := range edges {
		found := false
		for i := range first {
			at := func(step int) float64 { // in terms of the limit's side
				return math.Copysign(1, float64(e.value)) * (float64(e.value) + float64(after[step][i]) - float64(after[e.step][i]))
			}
			if first[i] != 0 || at(e.step-1) > math.Abs(float64(e.value)) != e.falls || e.step != 15 && math.Abs(at(15)) > limit || e.step == 15 && math.Abs(at(len(after)-1)) > limit {
				continue
			}
			first[i], found = e.value-after[e.step][i], true
			break
		}
		if !found {
			t.Fatalf("no entry comes to %+v", e)
		}
	}
}

// noFrames are not frames of a step, although they look like it: bytes that must be zero are not; other kinds, other lengths.
func noFrames(step uint32) (all [][]byte) {
	for _, f := range []Frame{{Step: step, Rank: 1, GoOn: true}, {Step: step, Rank: 1, Stop: true}} {
		all = append(all, f.Encode(nil))
		all[len(all)-1][15] = 1
	}
	losses := Frame{Step: step, Rank: 1}.Encode(nil)
	for _, kind := range []byte{0, 4, 255} {
		other := slices.Clone(losses)
		other[6] = kind
		all = append(all, other)
	}
	return append(all, losses[:15], append(losses, 0))
}

// story is a run's messages: pair 0 is in time, others are late or away, some losses are no numbers, equal, or spikes, some just not, some frames are noise.
func story(c *Config, of plot) []Message {
	rng := rand.New(rand.NewPCG(of.seed, 1))
	r, t := round{config: c, prompt: c.allPairs()}, newTuning()
	var all []Message
	raw := func(rank int, b []byte) {
		all = append(all, Message{Position: uint64(firstPosition + len(all)), Rank: rank, Frame: b})
	}
	send := func(rank int, f Frame) (done bool) {
		raw(rank, f.Encode(nil))
		_, done = r.take(rank, f)
		return done
	}
	pairs := c.Processors / 2
	for step := range c.Steps {
		if r.stop && step%BlockSteps == 0 {
			break
		}
		r.begin(uint32(step))
		done, lied := false, false
		if step%7 == 2 { // no pair is whole
			send(0, Frame{Step: uint32(step), GoOn: true})
		}
		if of.stop > 0 && step == of.stop {
			_ = send(1, Frame{Rank: 2, Stop: true}) || send(1, Frame{Step: 7, Rank: 1, Stop: true}) || send(3, Frame{Step: 99999, Rank: 3, Stop: true})
		}
		for _, rank := range rng.Perm(c.Processors) {
			pair := rank / 2
			late := pair > 0 && (pair == pairs-1 && step > 10 && step%3 != 2 || step%17 == 3+pair) // one is slow, others now and then
			if done || late || r.seen[rank] {
				continue
			}
			f := Frame{Step: r.due[pair], Rank: uint16(rank)}
			for i := range f.Losses {
				f.Losses[i] = float32(of.loss(step) + cmp.Or(of.noise, 0.01)*rng.NormFloat64())
				if of.wild {
					f.Losses[i] *= float32([]float64{1 << 20, 1e-6}[i] * rng.Float64())
				}
				if of.large && rank%2 == 0 {
					f.Losses[i] = []float32{1 << 40, -1 << 40}[i]
				}
				if step%29 == 0 && step > 0 || of.noise > 0 && step < 2 {
					f.Losses[i] = 2 // a trial changes nothing
				}
			}
			unit, edge := math.Sqrt(t.square), math.Sqrt(255.5+float64(step%2)) // almost a spike, and just one
			switch {
			case unit == 0:
			case c.Estimator == Paired && step%13 == 6:
				f.Losses = [2]float32{float32(2 * unit * edge * float64(c.sign(rank)))}
			case c.Estimator == Each && (step == 6 || step == 8 || step == 9): // far from the median of the others, which are in line
				f.Losses = [2]float32{float32(8 * unit * float64(max(rank-1, 0)))}
				if rank == 1 {
					f.Losses[0] = float32(2 * unit * (float64(2*c.Processors-2) + edge))
				}
			}
			if step%23 == 7 && rank == 3 || step%41 == 40 {
				f.Losses[rng.IntN(2)] = float32(math.NaN())
			}
			if step%23 == 9 && rank == 2 {
				f.Losses[0] = float32(math.Inf(-1))
			}
			if step%23 == 0 && rank == 1 && of.noise == 0 { // a spike, from the first step on
				f.Losses[1] = float32(math.Pow(10, float64(1+step/8)))
			}
			if rng.IntN(9) == 0 { // before the true one: in another's name, of other steps
				send((rank+1)%c.Processors, Frame{Step: f.Step, Rank: f.Rank, Losses: [2]float32{1, 2}})
				send(rank, Frame{Step: f.Step + 1, Rank: f.Rank})
				send(rank, Frame{Step: f.Step - 1, Rank: f.Rank})
			}
			done = send(rank, f)
			if !done && !lied && r.whole() != 0 && step < 2 {
				for _, b := range noFrames(uint32(step)) {
					raw(1, b)
				}
				lied = true
			}
			if !done && rng.IntN(9) == 0 { // twice, and of a rank that is none
				done = send(rank, f) || send(c.Processors, Frame{Step: f.Step, Rank: uint16(c.Processors)})
			}
		}
		if !done {
			send(0, Frame{Step: uint32(step) + 1, GoOn: true})
			done = send(0, Frame{Step: uint32(step), GoOn: true})
		}
		if !done {
			panic("pair 0 is always there")
		}
		if commit := r.decide(r.close(), &t); of.after != nil {
			of.after(step, commit)
		}
	}
	raw(0, Frame{Step: uint32(c.Steps)}.Encode(nil)) // when all is over
	return all
}

// goldenConfigs are those of the golden runs, by name, with what happens in them.
func goldenConfigs() (names []string, configs []*Config, plots []plot) {
	falls := func(step int) float64 { return 2 - float64(step)/200 }
	rises := func(step int) float64 { return falls(step) + []float64{0, 0, 1, 1.35, 2.5}[step/BlockSteps] } // the fourth block is hardly worse than the third
	ends := func(step int) float64 {
		if step >= 2*BlockSteps {
			return math.NaN()
		}
		return falls(step)
	}
	add := func(name string, of plot, change func(c *Config)) {
		c := &Config{Processors: 4, Estimator: Paired, Directions: 2, Key: 0x123456789abcdef0, Steps: 150, Epsilon: 1e-3, LearningRate: 0.01, Schedule: Cosine, Examples: []int{3, 4}, Clip: 3, Guard: true}
		change(c)
		of.seed = uint64(len(names))
		names, configs, plots = append(names, name), append(configs, c), append(plots, of)
	}
	add("pairs, one direction", plot{loss: falls, wild: true}, func(c *Config) {
		c.Guard, c.Clip, c.Schedule, c.Steps, c.Directions, c.Key = false, 0, Constant, 64, 1, math.MaxUint64
	})
	add("pairs, from a file", plot{loss: falls}, func(c *Config) { c.Processors, c.Examples, c.Clip = 8, []int{2, 2, 5, 1}, 1.5 })
	add("pairs, a worse block", plot{loss: rises}, func(c *Config) { c.Steps, c.Key = 300, 7 })
	// A slope that is clipped gives pair 0 an increment in the middle of two integers, if both pairs count.
	add("pairs, halves", plot{loss: falls, wild: true}, func(c *Config) {
		c.Steps, c.Schedule, c.Clip, c.Examples, c.LearningRate = 100, Constant, 1, []int{1, 2}, 6*(40000+0.5)/(1<<24)
	})
	add("each", plot{loss: ends}, func(c *Config) { c.Estimator, c.Directions, c.Examples, c.Processors = Each, 6, []int{2, 2, 2}, 6 })
	add("each, stopped", plot{loss: falls, stop: 70}, func(c *Config) { c.Steps, c.Estimator, c.Directions, c.Examples = 300, Each, 4, []int{2, 2} })
	// Slopes are of the size of rounding, increments of the largest one.
	add("each, many weights", plot{loss: falls, noise: 4e-7}, func(c *Config) {
		c.Steps, c.Estimator, c.Directions, c.Examples, c.LearningRate, c.Epsilon = 70, Each, 4, []int{2, 2}, 3, 0.0123
	})
	add("each, one step", plot{loss: falls, large: true}, func(c *Config) {
		c.Steps, c.Estimator, c.Directions, c.Processors, c.Examples = 1, Each, 12, 12, slices.Repeat([]int{2}, 6)
	})
	for i, edges := range [][]edge{{{15, limit, true}, {15, -limit, true}, {19, limit, false}, {19, -limit, false}}, {{15, limit + 1, false}}, {{19, -limit - 1, false}}} {
		add(fmt.Sprintf("pairs, from a file, large entries %d", i+1), plot{loss: falls, edges: edges}, func(c *Config) { c.Steps, c.Schedule = 20, Constant })
	}
	return names, configs, plots
}

func makeGolden(t *testing.T) *golden {
	t.Helper()
	g := &golden{}
	for _, c := range [][4]uint32{{}, {1, 2, 3, 4}, {0xffffffff, 0, 1 << 31, 12345}} {
		for _, key := range []uint64{0, 1, 0x123456789abcdef0, math.MaxUint64} {
			g.Parts.Philox = append(g.Parts.Philox, goldenPhilox{c, key, philox(c, keyOf(key))})
		}
	}
	for i, of := range []int{1, 2, 7, 8, 9, 100, 1437, 1<<32 - 1} {
		c := &Config{Key: 5 + uint64(i), Examples: []int{3, 1, 4}}
		if i%2 == 1 {
			c.Estimator, c.Examples = Each, []int{3, 3, 3}
		}
		for pair, step := range []int{0, 1000, math.MaxInt32} {
			g.Parts.Examples = append(g.Parts.Examples, goldenExamples{c.Key, of, c.Examples, c.Estimator == Each, step, pair, c.examples(step, pair, of)})
		}
	}
	for _, schedule := range []string{Constant, Cosine} {
		r := goldenRates{Schedule: schedule, Rate: 0.0123, Steps: 37}
		c := &Config{Schedule: schedule, LearningRate: r.Rate, Steps: r.Steps}
		for step := range r.Steps {
			r.Rates = append(r.Rates, fmt.Sprintf("%016x", math.Float64bits(c.rate(step))))
		}
		g.Parts.Rates = append(g.Parts.Rates, r)
	}
	names, configs, plots := goldenConfigs()
	for i, name := range names {
		c, shape := configs[i], []int{11, []int{5, 11}[i%2]} // rings of 128 and of 256
		if strings.Contains(name, "many") {
			shape = []int{67, 71}
		}
		w := drawn([]Tensor{{Name: "a.weight", Shape: shape, Std: 0.25}, {Name: "a.bias", Shape: []int{13}, Mean: 1}, {Name: "large", Shape: []int{5}, Shift: 2, Std: 6}}, c.Key)
		initial, run := FromKey, goldenRun{Name: name, Blocks: []string{}}
		moved, after := w.Clone(), [][]int32{}
		clear(moved.data[0])
		plots[i].after = func(step int, commit Commit) {
			moved.add(c.Key, commit.terms(c, uint32(step)))
			after = append(after, slices.Clone(moved.data[0]))
		}
		messages := story(c, plots[i])
		if strings.Contains(name, "file") {
			initial = FromFile
			for j := range w.tensors {
				w.tensors[j].Mean, w.tensors[j].Std = 0, 0
				w.data[j][0] += 1000
				if j == 0 && plots[i].edges != nil {
					clear(w.data[0])
					toEdges(t, w.data[0], after, plots[i].edges)
				}
				run.Initial = append(run.Initial, slices.Clone(w.data[j]))
			}
		}
		h := NewHeader(*c, Examples{Count: 1000, Hash: "made up"}, initial, w)
		encoded, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		run.Header = string(encoded[12 : len(encoded)-chainBytes])
		for rank := range c.Processors {
			tried := w.Clone()
			tried.add(c.Key, []term{c.trial(0, rank)})
			run.Trials = append(run.Trials, tried.Hash())
		}
		if plots[i].stop > 0 { // blocks are in the stream, too, two of them made up
			first, _, _ := play(t, encoded, w.Clone(), messages)
			forged := bytes.Clone(first[0])
			forged[8] ^= 1
			b, err := decodeBlock(c, first[0])
			if err != nil {
				t.Fatal(err)
			}
			after := int(b.Position) - firstPosition + 1
			messages = slices.Insert(messages, after, Message{Rank: 3, Block: forged}, Message{Block: first[0]}, Message{Rank: 1, Block: first[0]}, Message{Rank: 2, Block: []byte{1, 0, 0, 0}})
		}
		for j := range messages {
			m := &messages[j]
			m.Position = uint64(firstPosition + j)
			kind, data := "frame", m.Frame
			if m.Block != nil {
				kind, data = fmt.Sprintf("block.%d", m.Block[0]), m.Block
			}
			run.Messages = append(run.Messages, goldenMessage{fmt.Sprintf("%s.%d", kind, m.Rank), hex.EncodeToString(data)})
		}
		blocks, r, fails := play(t, encoded, w, messages)
		for _, b := range blocks {
			run.Blocks = append(run.Blocks, hex.EncodeToString(b))
		}
		run.Weights, run.Fails = r.Weights.Hash(), fails
		for _, d := range r.Weights.data {
			run.Entries = append(run.Entries, slices.Clone(d[:min(8, len(d))]))
		}
		g.Runs = append(g.Runs, run)
	}
	return g
}

// The vectors by which other programs check themselves are what this package computes. (Those of the parts have oracles of their own in
// other tests, and python/evenkeel/forward, written from the page, comes to the same.)
func TestGolden(t *testing.T) {
	g := makeGolden(t)
	var b bytes.Buffer // a line for each run
	line := func(before string, v any, after string) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s%s%s\n", before, text, after)
	}
	line(`{"parts": `, g.Parts, ",")
	for i, run := range g.Runs {
		line([]string{` "runs": [`, "  "}[min(i, 1)], run, []string{",", "]}"}[(i+1)/len(g.Runs)])
	}
	const path = "../internal/vectors/forward-golden.json"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("(-want +got)\n%.2000s", diff)
	}
}
