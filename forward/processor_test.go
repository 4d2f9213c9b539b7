package forward

import (
	"bytes"
	"context"
	"errors"
	"maps"
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
			p := &Processor{Replica: replicaOf(t, config, net, training.Len()), Rank: rank, Model: NewModel(net), Data: training, Bus: memory.Reader(rank), Patience: time.Hour,
				OnStep: func(int, Commit) error { done++; return nil }}
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

// What comes is counted by who sent it: a repeated frame, one of another step, one that is no frame, another rank's.
func TestIgnoredByName(t *testing.T) {
	net := network3(t)
	training, _ := digits(t)
	config := testConfig(4, 1, 1)
	loss := func(step uint32, rank uint16) []byte {
		return Frame{Step: step, Rank: rank, Losses: [2]float32{1, 1}}.Encode(nil)
	}
	nonsense := loss(0, 2)
	nonsense[6] = 77
	p := &Processor{Replica: replicaOf(t, config, net, training.Len()), Data: training, Patience: time.Hour, Bus: &script{messages: []Message{
		{Rank: 0, Frame: loss(0, 0)}, {Rank: 1, Frame: loss(0, 1)}, {Rank: 1, Frame: loss(0, 1)}, {Rank: 2, Frame: loss(7, 2)}, {Rank: 2, Frame: nonsense},
		{Rank: 3, Frame: loss(0, 2)}, {Rank: 3, Frame: []byte{1}}, {Rank: 9, Frame: loss(0, 9)}, {Rank: 1, Block: []byte("none")}, {}, {Rank: 2, Frame: loss(0, 2)},
		{Rank: 1, Frame: Frame{Rank: 1, GoOn: true}.Encode(nil)},
	}}}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	if want := map[int]int64{1: 2, 2: 2, 3: 2, 9: 1}; !maps.Equal(s.Ignored, want) {
		t.Errorf("ignored %v, want %v", s.Ignored, want)
	}
	if s.Received != 8*FrameBytes+1 || s.Sent != 0 || s.Forwards != 0 || s.Missed != 0 || s.Absent[0] != 0 || s.Absent[1] != 1 {
		t.Errorf("%+v", s)
	}
}

// Rank 0, too, asks to go on with the pairs that are complete, once.
func TestFirstRankGoesOnWithout(t *testing.T) {
	net := network3(t)
	training, _ := digits(t)
	config, memory := testConfig(4, 1, 1), NewMemory()
	p := &Processor{Replica: replicaOf(t, config, net, training.Len()), Model: NewModel(net), Data: training, Bus: memory.Reader(0), Patience: 10 * time.Millisecond}
	if err := memory.Reader(1).Publish(t.Context(), Frame{Rank: 1, Losses: [2]float32{1, 1}}.Encode(nil)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Sent != 2*FrameBytes || s.Received != FrameBytes || s.Forwards != 1 {
		t.Errorf("%+v", s)
	}
}

// It waits twice as long as half of the pairs took, and at least its patience; as long as fewer are there, four times its own time, and two seconds.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ least, took, half, want time.Duration }{
		{0, 0, 10 * ms, 100 * ms}, {0, 0, 80 * ms, 160 * ms}, {time.Second, 0, 80 * ms, time.Second},
		{0, 10 * ms, 0, 2 * time.Second}, {0, time.Second, 0, 4 * time.Second}, {time.Minute, time.Second, 0, time.Minute},
	} {
		if got := (&Processor{Patience: c.least, took: c.took}).patience(c.half); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A block that nobody sends is sent by everybody sixteen steps later, the last one after a second.
func TestBlocksThatNobodySends(t *testing.T) {
	c := testConfig(2, 1, 100)
	bus := &script{messages: story(c, plot{seed: 1, loss: func(int) float64 { return 1 }})}
	w := drawn([]Tensor{{Name: "a", Shape: []int{5}, Std: 1}}, 1)
	r, _ := replicaFrom(t, c, w, 10)
	var decided []int
	p := &Processor{Replica: r, Rank: 1, Data: numbers{count: 10}, Bus: bus, Patience: time.Hour}
	p.OnStep = func(step int, _ Commit) error { decided = append(decided, len(bus.sent)); return nil }
	if err := p.Run(t.Context()); err != nil { // rank 0 would have to send
		t.Fatal(err)
	}
	if !slices.Equal(bus.sent, []int{0, 1}) || decided[80] != 0 || decided[81] != 1 {
		t.Errorf("sent %v; after each step %v", bus.sent, decided)
	}
}

// Who finds another block in the stream than its own stops, and names who sent it.
func TestAnotherBlockStopsTheRun(t *testing.T) {
	c := testConfig(2, 1, 64)
	messages := story(c, plot{seed: 1, loss: func(int) float64 { return 1 }})
	w := drawn([]Tensor{{Name: "a", Shape: []int{5}, Std: 1}}, 1)
	_, encoded := replicaFrom(t, c, w.Clone(), 10)
	blocks, _, _ := play(t, encoded, w.Clone(), messages)
	other := bytes.Clone(blocks[0])
	other[len(other)-chainBytes-1] ^= 1
	end := len(other) - chainBytes
	copy(other[end:], chain(encoded[len(encoded)-chainBytes:], other[:end]))
	for name, at := range map[string]int{"after the last frame": len(messages), "long before its own": 10} {
		r, _ := replicaFrom(t, c, w.Clone(), 10)
		p := &Processor{Replica: r, Data: numbers{count: 10}, Bus: &script{messages: slices.Insert(slices.Clone(messages), at, Message{Rank: 1, Block: other})}}
		if err := p.Run(t.Context()); !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), "block 0 from processor 1 differs") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _ := replicaFrom(t, c, w.Clone(), 10)
	p := &Processor{Replica: r, Data: numbers{count: 10}, Bus: &script{messages: slices.Insert(slices.Clone(messages), 10, Message{Rank: 1, Block: blocks[0]})}}
	if err := p.Run(t.Context()); err != nil {
		t.Errorf("the right block, too early: %v", err)
	}
	other[5] ^= 1 // damaged: it is nobody's
	r, _ = replicaFrom(t, c, w.Clone(), 10)
	p = &Processor{Replica: r, Data: numbers{count: 10}, Bus: &script{messages: append(messages, Message{Rank: 1, Block: other})}}
	if err := p.Run(t.Context()); err != nil || p.Stats().Ignored[1] == 0 {
		t.Errorf("a damaged block: %v, %v", err, p.Stats().Ignored)
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

// A sweep is shared among processors in whole eights of rows, evenly to an eight, and every entry is swept once.
func TestInParts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for _, c := range []struct{ len, parts int }{
		{10, 1}, {2*partLen - 1, 1}, {2 * partLen, 2}, {3*partLen + 5, 3}, {4 * partLen, 4}, {9 * partLen, 4}, {9*partLen + 777, 4},
	} {
		const eight = 8 * rowEntries
		w := make([]int32, c.len)
		var mu sync.Mutex
		var sizes []int
		inParts(w, func(part []int32, row int) {
			for i := range part {
				part[i] += int32(row*rowEntries + i + 1)
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
		if least, most := slices.Min(sizes), slices.Max(sizes); len(sizes) != c.parts || most-least > c.parts*eight || least == 0 {
			t.Errorf("%d entries in parts of %v, want %d", c.len, sizes, c.parts)
		} else if c.len%(c.parts*eight) == 0 && least != most {
			t.Errorf("%d entries in parts of %v, though they divide evenly", c.len, sizes)
		}
	}
}
