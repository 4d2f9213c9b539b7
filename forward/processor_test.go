package forward

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
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
