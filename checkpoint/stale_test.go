package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func saveArrays(f *File, arrays []Array, s State) error {
	save, err := f.Begin(context.Background(), s.Step)
	if err != nil {
		return err
	}
	for _, a := range arrays {
		if err := save.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := save.Commit(s); err != nil {
		return err
	}
	return save.Wait(context.Background())
}

// A save that repeats the parameters of the one before is counted, or refused; the last good checkpoint stays, and the slot
// is used again.
func TestUnchanged(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		m := NewMemory(nil)
		f, err := CreateOn(m, model(0), Options{RefuseUnchanged: refuse})
		if err != nil {
			t.Fatal(err)
		}
		save(t, f, 1)
		arrays := model(1)
		fill(arrays[2:], 2) // moments and buffers only
		err = saveArrays(f, arrays, State{Step: 2})
		if got := f.Stats().Unchanged; got != 1 || refuse != errors.Is(err, ErrUnchanged) {
			t.Errorf("refuse %v: %v, %d counted", refuse, err, got)
		}
		if err := saveArrays(f, arrays, State{Step: 1}); err != nil && !refuse {
			t.Errorf("the same step again: %v", err)
		}
		save(t, f, 3)
		for range 4 { // after a restore it is compared with what was restored
			restored(t, f, 3)
			arrays = model(3)
			err = saveArrays(f, arrays, State{Step: 4})
			if refuse != errors.Is(err, ErrUnchanged) {
				t.Errorf("refuse %v, after a restore: %v", refuse, err)
			}
			save(t, f, 3)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A data cursor ahead of the step is named: what it passed would be skipped.
func TestCursorAhead(t *testing.T) {
	f, err := CreateOn(NewMemory(nil), model(0), Options{CursorPerStep: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		step, cursor, ahead uint64
	}{{0, 65, 1}, {0, 64, 0}, {10, 64 + 640 + 736, 736}, {10, 64 + 640, 0}, {11, 700, 0}, {12, 700 + 65, 1}} {
		err := saveArrays(f, model(c.step+1), State{Step: c.step, Cursor: c.cursor})
		if (err != nil) != (c.ahead > 0) {
			t.Errorf("step %d, cursor %d: %v", c.step, c.cursor, err)
		}
		if c.ahead > 0 && (!errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "ahead") || c.ahead == 736 && !strings.Contains(err.Error(), "736 ahead")) {
			t.Errorf("step %d, cursor %d: %v", c.step, c.cursor, err)
		}
	}
}
