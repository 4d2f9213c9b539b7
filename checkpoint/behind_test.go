package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// slowReads lets reads of arrays pass one by one, and notes which.
type slowReads struct {
	*Memory
	slow bool
	mu   sync.Mutex
	read []int64
	done int
	pass chan struct{}
}

// underWay is how many reads were begun, and how many of them have not ended.
func (s *slowReads) underWay() (begun, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.read), len(s.read) - s.done
}

func (s *slowReads) ReadAt(p []byte, at int64) (int, error) {
	if s.slow && len(p) == 64<<10 {
		s.mu.Lock()
		s.read = append(s.read, at)
		s.mu.Unlock()
		<-s.pass
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.done++
		}()
	}
	return s.Memory.ReadAt(p, at)
}

func layers() []Array {
	var all []Array
	for _, name := range []string{"one", "two", "three", "four"} { // in the file, moments lie between the parameters
		all = append(all, Of(name, Parameter, make([]float32, 16<<10)), Of(name+".moment", Moment, make([]float32, 16<<10)))
	}
	return all
}

// behindFile has checkpoints of steps 1 and 2, array i of which is full of bytes step + i.
func behindFile(t *testing.T) *slowReads {
	t.Helper()
	arrays := layers()
	s := &slowReads{Memory: NewMemory(nil), pass: make(chan struct{})}
	f, err := CreateOn(s, arrays, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(2) {
		save, err := f.Begin(context.Background(), step+1)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range arrays {
			if err := save.Write(a.Name, bytes.Repeat([]byte{byte(step) + 1 + byte(i)}, len(a.Data))); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(save.Commit(State{Cursor: step}), save.Wait(context.Background())); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.slow = true
	return s
}

func openBehind(t *testing.T, s Storage) (*File, []Array, State, *Behind) {
	t.Helper()
	arrays := layers()
	f, err := OpenOn(s, arrays, Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, b, err := f.RestoreBehind(arrays)
	if err != nil {
		t.Fatal(err)
	}
	return f, arrays, state, b
}

func full(a Array, with byte) bool {
	return bytes.Equal(a.Data, bytes.Repeat([]byte{with}, len(a.Data)))
}

// Parameters come first, in the order in which they are given, but those first that somebody waits for; moments come behind.
func TestBehindOrder(t *testing.T) {
	s := behindFile(t)
	f, arrays, state, b := openBehind(t, s)
	if state.Step != 2 || state.Cursor != 1 {
		t.Errorf("%+v", state)
	}
	if _, err := f.Begin(context.Background(), 3); !errors.Is(err, ErrNotRestored) {
		t.Errorf("begun before everything was read: %v", err)
	}
	for b.next() != f.index["three"] { // "one" and "two" are with the two readers
		time.Sleep(time.Millisecond)
	}
	got := make(chan error)
	go func() { got <- b.Wait("four", "four.moment") }()
	for b.next() != f.index["four"] {
		time.Sleep(time.Millisecond)
	}
	for range arrays {
		s.pass <- struct{}{}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := b.Wait(); err != nil {
		t.Error(err)
	}
	var order []string
	for _, at := range s.read {
		i := slices.Index(f.head.offsets, at-f.head.slot(b.record.slot))
		order = append(order, f.head.arrays[i].Name)
	}
	slices.Sort(order[:2]) // two readers
	slices.Sort(order[2:4])
	if want := []string{"one", "two", "four", "four.moment", "three", "one.moment", "two.moment", "three.moment"}; !slices.Equal(order, want) {
		t.Errorf("read %q, want %q", order, want)
	}
	for i, a := range arrays {
		if !full(a, 2+byte(i)) {
			t.Errorf("%s holds other bytes", a.Name)
		}
	}
	save, err := f.Begin(context.Background(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range arrays {
		if err := save.Write(a.Name, a.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(save.Commit(State{}), save.Wait(context.Background()), f.Close()); err != nil {
		t.Error(err)
	}
}

func (b *Behind) next() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.todo[0]
}

// What does not verify is met by who waits for it, and by who waits for all; what was read stays good. Restore then takes the older one.
func TestBehindDamage(t *testing.T) {
	for _, damaged := range []string{"three", "three.moment"} {
		s := behindFile(t)
		s.slow = false
		f, _, _, b := openBehind(t, s)
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
		at := f.head.slot(b.record.slot) + f.head.offsets[f.index[damaged]]
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		s.data[at+7] ^= 1
		var arrays []Array
		f, arrays, _, b = openBehind(t, s)
		var good []string // of "three" the readers may know before they have read the others
		if damaged == "three.moment" {
			good = []string{"one", "two", "three", "four"}
		}
		if good != nil {
			if err := b.Wait(good...); err != nil || !full(arrays[4], 6) {
				t.Errorf("%s: %v", good, err)
			}
		}
		if err := b.Wait(damaged); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", damaged, err)
		}
		if err := b.Wait(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: all: %v", damaged, err)
		}
		if good != nil && b.Wait(good...) != nil {
			t.Error("what was read before is not good any more")
		}
		if _, err := f.Begin(context.Background(), 3); !errors.Is(err, ErrNotRestored) {
			t.Errorf("begun after a restore that failed: %v", err)
		}
		state, report, err := f.Restore(arrays)
		if err != nil || state.Step != 1 || report.Restored < 0 || !full(arrays[4], 5) {
			t.Errorf("%+v, %+v, %v", state, report, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A restore that is given up ends: its goroutines, and who waits.
func TestBehindGivenUp(t *testing.T) {
	for _, how := range []string{"close", "restore", "verify"} {
		s := behindFile(t)
		f, arrays, _, b := openBehind(t, s)
		got := make(chan error)
		go func() { got <- b.Wait("three") }()
		for begun := 0; begun < 2; begun, _ = s.underWay() {
			time.Sleep(time.Millisecond)
		}
		go func() { // what is under way comes to its end when nothing else is to be read
			for range 500 {
				b.mu.Lock()
				ended := b.err != nil
				b.mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				if ended {
					break
				}
			}
			close(s.pass)
		}()
		switch how {
		case "close":
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if begun, left := s.underWay(); left > 0 {
				t.Errorf("closed, and %d of %d reads are under way", left, begun)
			}
		case "restore":
			if state, _, err := f.Restore(arrays); err != nil || state.Step != 2 {
				t.Errorf("%+v, %v", state, err)
			}
		case "verify":
			if _, err := f.Verify(); err != nil {
				t.Error(err)
			}
		}
		if err := <-got; !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", how, err)
		}
		if err := b.Wait(); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: all: %v", how, err)
		}
		f.Close()
	}
}

// Bad use is an error; a new file is empty, and may be saved to.
func TestBehindRefused(t *testing.T) {
	arrays := layers()
	f, err := CreateOn(NewMemory(nil), arrays, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := f.RestoreBehind(arrays); !errors.Is(err, ErrEmpty) {
		t.Errorf("a new file: %v", err)
	}
	if _, err := f.Begin(context.Background(), 1); err != nil {
		t.Error(err)
	}
	if _, _, err := f.RestoreBehind(arrays[1:]); !errors.Is(err, ErrSchema) {
		t.Errorf("an array too few: %v", err)
	}
	g, err := CreateOn(NewMemory(nil), arrays, Options{Ranks: 2, ID: [16]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, _, err := g.RestoreBehind(arrays); !errors.Is(err, ErrUsage) {
		t.Errorf("one of two ranks: %v", err)
	}
	s := behindFile(t)
	s.slow = false
	h, _, _, b := openBehind(t, s)
	defer h.Close()
	if err := b.Wait("five"); !errors.Is(err, ErrSchema) {
		t.Errorf("no such array: %v", err)
	}
}

// A slot that another process wrote to meanwhile is not restored.
func TestBehindReused(t *testing.T) {
	s := behindFile(t)
	s.slow = false
	f, arrays, _, b := openBehind(t, s)
	defer f.Close()
	for _, a := range arrays {
		if err := b.Wait(a.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.WriteAt(make([]byte, 8), f.head.record(b.record.slot)+wordAt); err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("its record is gone: %v", err)
	}
	if _, err := f.Begin(context.Background(), 3); !errors.Is(err, ErrNotRestored) {
		t.Errorf("begun: %v", err)
	}
}

// Moments are read by one, so that who computes has the disk and the processor.
func TestBehindGivesWay(t *testing.T) {
	s := behindFile(t)
	f, _, _, _ := openBehind(t, s)
	for range 4 {
		s.pass <- struct{}{}
	}
	for begun := 0; begun < 5; begun, _ = s.underWay() {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	if begun, left := s.underWay(); begun != 5 || left != 1 {
		t.Errorf("%d reads, %d under way, want 5 and 1", begun, left)
	}
	close(s.pass)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
