package checkpoint

import (
	"fmt"
	"slices"
	"sync"

	"github.com/evenkeel/evenkeel/checkpoint/internal/storage"
)

// Behind is a restore that goes on while the program computes. Its methods may be called by several goroutines.
type Behind struct {
	file    *File
	record  record
	mu      sync.Mutex
	changed *sync.Cond
	todo    []int  // to be read, in order
	first   int    // how many of them are parameters and buffers, not yet taken
	left    []bool // per array: not yet read and verified
	unread  int    // of them
	err     error
	read    func(array int) error
	threads sync.WaitGroup
}

// RestoreBehind is Restore that returns before the arrays are read. They are read and verified in the background: parameters and buffers first, in the order
// in which they are given (that of the layers in a forward pass), moments behind them. Wait for an array before you use it, and for all before the first Begin,
// which is refused until then. What does not verify is Wait's error: Restore then looks for an older checkpoint.
func (f *File) RestoreBehind(arrays []Array) (State, *Behind, error) {
	if f.head.ranks > 1 {
		return State{}, nil, fmt.Errorf("restore checkpoint %s: it holds the part of rank %d of %d: %w", f.path, f.head.rank, f.head.ranks, ErrUsage)
	}
	into, err := f.destinations(arrays)
	if err != nil {
		return State{}, nil, fmt.Errorf("restore checkpoint %s: %w", f.path, err)
	}
	b := &Behind{file: f, left: make([]bool, len(into)), unread: len(into)}
	b.changed = sync.NewCond(&b.mu)
	var hashes []uint64
	state, _, err := f.readWith(nil, true, func(r record, _ func(int)) (s State, err error) {
		b.record = r
		hashes, s, err = f.readManifest(r)
		return s, err
	})
	if err != nil {
		return State{}, nil, fmt.Errorf("restore checkpoint %s: %w", f.path, err)
	}
	f.mu.Lock()
	f.known = false
	f.mu.Unlock()
	for _, moments := range []bool{false, true} {
		for _, a := range arrays {
			if (a.Kind == Moment) == moments {
				b.todo = append(b.todo, f.index[a.Name])
			}
		}
		if !moments {
			b.first = len(b.todo)
		}
	}
	for i := range b.left {
		b.left[i] = true
	}
	side, size := storage.Readers(f.storage)
	b.read = func(i int) error {
		_, err := f.readArray(i, int64(size), f.head.slot(b.record.slot)+f.head.offsets[i], hashes[i], into[i], nil, func(int) {})
		return err
	}
	f.mu.Lock()
	f.behind = b
	f.mu.Unlock()
	var parameters sync.WaitGroup
	for range side {
		parameters.Add(1)
		b.threads.Go(func() {
			defer parameters.Done()
			b.run(false)
		})
	}
	b.threads.Go(func() {
		parameters.Wait()
		b.run(true) // alone: who computes now does not need them yet
	})
	return state, b, nil
}

// run reads what is to be read; the moments only if it is to.
func (b *Behind) run(moments bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil && len(b.todo) > 0 && (moments || b.first > 0) {
		i := b.todo[0]
		b.todo, b.first = b.todo[1:], max(0, b.first-1)
		b.mu.Unlock()
		err := b.read(i)
		b.mu.Lock()
		if err == nil {
			b.left[i] = false
			b.unread--
		} else if b.err == nil {
			b.err = fmt.Errorf("checkpoint %s of step %d: %w", b.file.path, b.record.step, err)
		}
		b.changed.Broadcast()
	}
}

// Wait waits until these arrays are read and verified, or all of them: only then does the checkpoint count as restored.
func (b *Behind) Wait(names ...string) error {
	var wanted []int
	for _, name := range names {
		i, ok := b.file.index[name]
		if !ok {
			return fmt.Errorf("checkpoint %s: array %q is not in the file: %w", b.file.path, name, ErrSchema)
		}
		wanted = append(wanted, i)
	}
	if len(names) == 0 {
		b.run(true) // who has nothing else to do helps
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prefer(wanted)
	missing := func() bool {
		return len(names) == 0 && b.unread > 0 || slices.ContainsFunc(wanted, func(i int) bool { return b.left[i] })
	}
	for b.err == nil && missing() {
		b.changed.Wait()
	}
	if len(names) > 0 && !missing() {
		return nil
	}
	if b.err != nil {
		return b.err
	}
	f := b.file
	if b.err = f.still(b.record); b.err != nil {
		return b.err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = true
	return nil
}

// prefer has arrays read next.
func (b *Behind) prefer(wanted []int) {
	var next, rest []int
	for at, i := range b.todo {
		switch {
		case !slices.Contains(wanted, i):
			rest = append(rest, i)
		default:
			next = append(next, i)
			if at >= b.first {
				b.first++ // a moment that is wanted now
			}
		}
	}
	b.todo = append(next, rest...)
}

// endBehind ends a restore that is still reading; waiting calls return an error.
func (f *File) endBehind() {
	f.mu.Lock()
	b := f.behind
	f.behind = nil
	f.mu.Unlock()
	if b == nil {
		return
	}
	b.mu.Lock()
	if b.err == nil && b.unread > 0 {
		b.err = fmt.Errorf("checkpoint %s: the restore was given up: %w", f.path, ErrUsage)
	}
	b.changed.Broadcast()
	b.mu.Unlock()
	b.threads.Wait()
}
