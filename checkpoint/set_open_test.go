package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A creation that was interrupted begins anew; a lost part of a set with checkpoints does not.
func TestOpenOrCreateSet(t *testing.T) {
	arrays := []Array{Of("a", Parameter, make([]float32, 5000)), Of("b", Parameter, make([]float32, 300)), Of("c", Moment, make([]float64, 7))}
	for created := range 4 {
		dir := t.TempDir()
		var paths []string
		for i := range 3 {
			paths = append(paths, filepath.Join(dir, fmt.Sprint("run.", i)))
		}
		if created > 0 {
			s, err := CreateSet(paths, arrays, Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			for _, p := range paths[created:] {
				if err := os.Remove(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, err := OpenOrCreateSet(paths, arrays, Options{})
		if err != nil {
			t.Fatalf("%d files there: %v", created, err)
		}
		if _, _, err := s.Restore(arrays); !errors.Is(err, ErrEmpty) {
			t.Fatal(err)
		}
		save, err := s.Begin(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range arrays {
			if err := save.Write(a.Name, a.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(save.Commit(State{}), save.Wait(t.Context()), s.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(paths[created%3]); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenOrCreateSet(paths, arrays, Options{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a part was lost: %v", err)
		}
	}
}

// A step that is damaged on one rank is passed over on all, and the report says which and where.
func TestSetTellsDamage(t *testing.T) {
	paths := setPaths(t, 3)
	s, err := CreateSet(paths, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(3) {
		saveSet(s, step+1, t)
	}
	slot, f := -1, s.files[1]
	for _, r := range f.Slots() {
		if r.Step == 3 {
			slot = r.Slot
		}
	}
	at := f.head.slot(slot)
	s.Close()
	data, err := os.ReadFile(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 4
	if err := os.WriteFile(paths[1], data, 0o600); err != nil {
		t.Fatal(err)
	}
	arrays := model(0)
	if s, err = OpenSet(paths, arrays, Options{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	state, reports, err := s.Restore(arrays)
	if err != nil || state.Step != 2 || reports[1].Slots[slot].Fault == "" || reports[1].Restored < 0 || reports[1].Restored == slot {
		t.Errorf("step %d, %+v, %v", state.Step, reports[1], err)
	}
}
