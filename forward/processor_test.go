package forward

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A weight out of range is seen at the end of checkEvery steps, or of the run, and not before: until then it may come back.
func TestOverflowIsSeen(t *testing.T) {
	net := network3(t)
	training, _ := digits(t)
	for _, c := range []struct {
		steps, done int
		says        string
	}{
		{40, checkEvery - 1, "step 15: "},
		{checkEvery, checkEvery - 1, "step 15: "},
		{5, 4, "step 4: "},
	} {
		config, memory := testConfig(2, 1, c.steps), NewMemory()
		var wg sync.WaitGroup
		for rank := range 2 {
			done := 0
			p := &Processor{Config: config, Rank: rank, Model: NewModel(net), Data: training, Weights: NewWeights(net, config.Key), Bus: memory.Reader(),
				Each: func(int, Commit) error { done++; return nil }}
			p.Weights.data[0][0] = limit + limit/2
			wg.Go(func() {
				if err := p.Run(t.Context()); !errors.Is(err, ErrOverflow) || !strings.Contains(err.Error(), c.says) || done != c.done {
					t.Errorf("%d steps: %v after %d", c.steps, err, done)
				}
			})
		}
		wg.Wait()
	}
}

// An observer counts what it takes in: a repeated frame, one of another step and one that is no frame are ignored. It
// tries nothing and sends nothing.
func TestObserverCounts(t *testing.T) {
	net := network3(t)
	training, _ := digits(t)
	config, memory := testConfig(4, 1, 1), NewMemory()
	loss := func(step uint32, rank uint16) []byte {
		return Frame{Step: step, Rank: rank, Losses: [2]float32{1, 1}}.Encode(nil)
	}
	nonsense := loss(0, 0)
	nonsense[6] = 77
	write := memory.Reader()
	for _, b := range [][]byte{
		loss(0, 0), loss(0, 1), loss(0, 1), loss(7, 2), nonsense, loss(0, 60_000), loss(0, 2),
		Frame{Rank: 1, Commit: true, Pairs: 0b11}.Encode(nil), // names a pair of which a half is missing
		Frame{Rank: 1, Commit: true, Pairs: 0b01}.Encode(nil),
	} {
		if err := write.Publish(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	p := &Processor{Config: config, Rank: -1, Model: NewModel(net), Data: training, Weights: NewWeights(net, config.Key), Bus: memory.Reader()}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := p.Stats(), (Stats{Received: 8 * FrameBytes, Ignored: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Rank 0, too, proposes to go on with the pairs that are complete.
func TestFirstRankGoesOnWithout(t *testing.T) {
	net := network3(t)
	training, _ := digits(t)
	config, memory := testConfig(4, 1, 1), NewMemory()
	p := &Processor{Config: config, Model: NewModel(net), Data: training, Weights: NewWeights(net, config.Key), Bus: memory.Reader(), Timeout: 10 * time.Millisecond}
	if err := memory.Reader().Publish(t.Context(), Frame{Rank: 1, Losses: [2]float32{1, 1}}.Encode(nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := p.Stats(), (Stats{Sent: 2 * FrameBytes, Received: FrameBytes, Forwards: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// sequences have three targets to a sample, each of which says whose it is.
type sequences struct{}

func (sequences) Len() int                                   { return 50 }
func (sequences) Shape() (inputs, targets, classes, tok int) { return 2, 3, 1000, 0 }
func (sequences) Sample(i int, inputs []float32, targets []int32) {
	for k := range inputs {
		inputs[k] = float32(10*i + k)
	}
	for k := range targets {
		targets[k] = int32(10*i + k)
	}
}

// A batch holds each sample's inputs and targets, one after the other, whatever its size and that of the batch before.
func TestGather(t *testing.T) {
	p := &Processor{Data: sequences{}}
	for _, samples := range [][]int{{4, 9}, {1, 2, 3}, {7, 8, 5}, {6}} {
		var inputs []float32
		var targets []int32
		for _, i := range samples {
			inputs = append(inputs, float32(10*i), float32(10*i+1))
			targets = append(targets, int32(10*i), int32(10*i+1), int32(10*i+2))
		}
		if b := p.gather(samples); !slices.Equal(b.Inputs, inputs) || !slices.Equal(b.Targets, targets) {
			t.Errorf("samples %v: %v and %v", samples, b.Inputs, b.Targets)
		}
	}
}

// A sweep is shared among processors in whole blocks, evenly to a block, and every entry is swept once.
func TestInParts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, c := range []struct{ len, parts int }{
		{10, 1}, {2*partLen - 1, 1}, {2 * partLen, 2}, {3*partLen + 5, 3}, {4 * partLen, 4}, {9 * partLen, 4}, {9*partLen + 777, 4},
	} {
		const entries = 128
		w := make([]int32, c.len)
		var mu sync.Mutex
		var sizes []int
		inParts(w, entries, func(part []int32, block int) {
			for i := range part {
				part[i] += int32(block*entries + i + 1)
			}
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(part))
		})
		for i, x := range w {
			if x != int32(i+1) {
				t.Fatalf("%d entries: entry %d was taken for %d", c.len, i, x-1)
			}
		}
		if least, most := slices.Min(sizes), slices.Max(sizes); len(sizes) != c.parts || most-least > c.parts*entries || least == 0 {
			t.Errorf("%d entries in parts of %v, want %d", c.len, sizes, c.parts)
		} else if c.len%(c.parts*entries) == 0 && least != most {
			t.Errorf("%d entries in parts of %v, though they divide evenly", c.len, sizes)
		}
	}
}
