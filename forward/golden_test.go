package forward

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
func play(t *testing.T, encoded []byte, w *Weights, messages []Message) (blocks [][]byte, r *Replica) {
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
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return blocks, r
}

// story is a run's messages: pair 0 is in time, others are late or away, some losses are no numbers or spikes, some frames are noise. In step stop, if that is not 0,
// somebody asks to stop.
func story(c *Config, seed uint64, stop int, loss func(step int) float64) []Message {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := round{config: c, prompt: c.allPairs()}
	var all []Message
	send := func(rank int, f Frame) (done bool) {
		all = append(all, Message{Position: uint64(firstPosition + len(all)), Rank: rank, Frame: f.Encode(nil)})
		_, done = r.take(rank, f)
		return done
	}
	pairs := c.Processors / 2
	for step := range c.Steps {
		if r.stop && step%BlockSteps == 0 {
			break
		}
		r.begin(uint32(step))
		done := false
		if stop > 0 && step == 3 { // bytes that must be zero are not: neither goes on nor ends in this block
			for _, f := range []Frame{{Step: 3, Rank: 1, GoOn: true}, {Step: 3, Rank: 1, Stop: true}} {
				almost := f.Encode(nil)
				almost[15] = 1
				all = append(all, Message{Position: uint64(firstPosition + len(all)), Rank: 1, Frame: almost})
			}
		}
		if stop > 0 && step == stop {
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
				f.Losses[i] = float32(loss(step) + 0.01*rng.NormFloat64())
			}
			if step%23 == 7 && rank == 3 {
				f.Losses[rng.IntN(2)] = float32(math.NaN())
			}
			if step%23 == 9 && rank == 2 {
				f.Losses[0] = float32(math.Inf(-1))
			}
			if step%23 == 0 && rank == 1 { // a spike, from the first step on
				f.Losses[1] = float32(math.Pow(10, float64(1+step/8)))
			}
			done = send(rank, f)
			if !done && rng.IntN(9) == 0 { // noise: twice, another's, of a step to come, of a rank that is none
				done = send(rank, f) || send((rank+1)%c.Processors, f) || send(rank, Frame{Step: f.Step + 1, Rank: f.Rank}) || send(c.Processors, Frame{Step: f.Step, Rank: uint16(c.Processors)})
			}
		}
		if !done {
			send(0, Frame{Step: uint32(step) + 1, GoOn: true})
			done = send(0, Frame{Step: uint32(step), GoOn: true})
		}
		if !done {
			panic("pair 0 is always there")
		}
		r.close()
	}
	return all
}

func goldenConfigs() map[string]*Config {
	base := func() *Config {
		return &Config{Processors: 4, Estimator: Paired, Directions: 2, Key: 0x123456789abcdef0, Steps: 150, Epsilon: 1e-3, LearningRate: 0.01, Schedule: Cosine, Examples: []int{3, 4}, Clip: 3, Guard: true}
	}
	plain, file, jump, each, stopped := base(), base(), base(), base(), base()
	plain.Guard, plain.Clip, plain.Schedule, plain.Steps, plain.Directions = false, 0, Constant, 64, 1
	file.Processors, file.Examples, file.Clip = 8, []int{2, 2, 5, 1}, 1.5
	jump.Steps, jump.Key = 300, 7
	each.Estimator, each.Directions, each.Examples, each.Processors = Each, 6, []int{2, 2, 2}, 6
	stopped.Steps, stopped.Estimator, stopped.Directions, stopped.Examples = 300, Each, 4, []int{2, 2}
	return map[string]*Config{"pairs, one direction": plain, "pairs, from a file": file, "pairs, a worse block": jump, "each": each, "each, stopped": stopped}
}

func makeGolden(t *testing.T) *golden {
	t.Helper()
	g := &golden{}
	for _, c := range [][4]uint32{{}, {1, 2, 3, 4}, {0xffffffff, 0, 1 << 31, 12345}} {
		for _, key := range []uint64{0, 1, 0x123456789abcdef0} {
			g.Parts.Philox = append(g.Parts.Philox, goldenPhilox{c, key, philox(c, keyOf(key))})
		}
	}
	for i, of := range []int{1, 2, 7, 100, 1437, 1<<32 - 1} {
		c := &Config{Key: 5 + uint64(i), Examples: []int{3, 1, 4}}
		if i%2 == 1 {
			c.Estimator, c.Examples = Each, []int{3, 3, 3}
		}
		for step := range 3 {
			g.Parts.Examples = append(g.Parts.Examples, goldenExamples{c.Key, of, c.Examples, c.Estimator == Each, 1000 * step, step, c.examples(1000*step, step, of)})
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
	configs := goldenConfigs()
	for i, name := range []string{"pairs, one direction", "pairs, from a file", "pairs, a worse block", "each", "each, stopped"} {
		c := configs[name]
		w := drawn([]Tensor{{Name: "a.weight", Shape: []int{13, 11}, Std: 0.25}, {Name: "a.bias", Shape: []int{13}, Mean: 1}, {Name: "large", Shape: []int{5}, Shift: 2, Std: 6}}, c.Key)
		initial, run := FromKey, goldenRun{Name: name}
		if strings.Contains(name, "file") {
			initial = FromFile
			for j := range w.tensors {
				w.tensors[j].Mean, w.tensors[j].Std = 0, 0
				w.data[j][0] += 1000
				run.Initial = append(run.Initial, slices.Clone(w.data[j]))
			}
		}
		h := NewHeader(*c, Examples{Count: 1000, Hash: "made up"}, initial, w)
		encoded, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		run.Header = string(encoded[12 : len(encoded)-chainBytes])
		stop := 0
		if name == "each, stopped" {
			stop = 70
		}
		messages := story(c, uint64(i), stop, func(step int) float64 {
			if strings.Contains(name, "worse") && step >= 128 {
				return 3
			}
			return 2 - float64(step)/200
		})
		for _, m := range messages {
			run.Messages = append(run.Messages, goldenMessage{fmt.Sprintf("frame.%d", m.Rank), hex.EncodeToString(m.Frame)})
		}
		blocks, r := play(t, encoded, w, messages)
		for _, b := range blocks {
			run.Blocks = append(run.Blocks, hex.EncodeToString(b))
		}
		run.Weights = r.Weights.Hash()
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
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("(-want +got)\n%.2000s", diff)
	}
}
