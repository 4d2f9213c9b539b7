package checkpoint

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func setPaths(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := range n {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("run.%d.ckpt", i)))
	}
	return paths
}

func saveSet(s *Set, step uint64, t *testing.T) {
	t.Helper()
	save, err := s.Begin(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range model(step) {
		if err := save.Write(a.Name, a.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := save.Commit(state(step)); err != nil {
		t.Fatal(err)
	}
	if err := save.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func setHolds(s *Set) (uint64, error) {
	arrays := model(0)
	got, _, err := s.Restore(arrays)
	if err != nil {
		return 0, err
	}
	for i, a := range model(got.Step) {
		if string(a.Data) != string(arrays[i].Data) {
			return 0, fmt.Errorf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	return got.Step, nil
}

func TestSet(t *testing.T) {
	paths := setPaths(t, 3)
	s, err := CreateSet(paths, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setHolds(s); !errors.Is(err, ErrEmpty) {
		t.Errorf("a new set restores with %v", err)
	}
	for step := uint64(1); step < 9; step++ {
		saveSet(s, step, t)
	}
	// Rank 1 is lost between its own commit and that of the others.
	for i, f := range s.files {
		save, err := f.Begin(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		if i != 0 {
			save.Abort()
			continue
		}
		for _, a := range f.head.arrays {
			if err := save.Write(a.Name, make([]byte, a.Len())); err != nil {
				t.Fatal(err)
			}
		}
		if err := save.Commit(state(9)); err != nil {
			t.Fatal(err)
		}
		if err := save.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(paths)
	s, err = OpenSet(paths, model(0), Options{Mode: Staged})
	if err != nil {
		t.Fatal(err)
	}
	if step, err := setHolds(s); err != nil || step != 8 {
		t.Errorf("restored step %d, %v; want 8, the last of all ranks", step, err)
	}
	saveSet(s, 9, t)
	saveSet(s, 10, t)
	if step, err := setHolds(s); err != nil || step != 10 {
		t.Errorf("restored step %d, %v; want 10", step, err)
	}
	// One rank's newest slot is damaged: all go back a step.
	f := s.files[1]
	r := f.committed()
	for slot, st := range f.slots {
		if st.record.step == r[0] {
			if _, err := f.storage.WriteAt([]byte{1, 2, 3, 4}, f.head.slot(slot)+f.head.offsets[0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if step, err := setHolds(s); err != nil || step != 9 {
		t.Errorf("restored step %d, %v; want 9", step, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSet(paths[:2], nil, Options{}); !errors.Is(err, ErrSchema) {
		t.Errorf("a rank is missing: %v", err)
	}
	one, err := Open(paths[0], nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, _, err := one.Restore(one.Arrays()); !errors.Is(err, ErrUsage) && !errors.Is(err, ErrSchema) {
		t.Errorf("one rank restored alone: %v", err)
	}
}

// Without the other ranks' word nobody reuses what may be the newest checkpoint of all.
func TestNotAcknowledged(t *testing.T) {
	f, err := CreateOn(NewMemory(nil), model(0), Options{Ranks: 2, ID: [16]byte{1}, WhenFull: Fail})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for step := uint64(1); step < 4; step++ {
		save(t, f, step)
	}
	if err := trySave(f, 4); !errors.Is(err, ErrBusy) {
		t.Fatalf("every slot may be the newest of all: %v", err)
	}
	if err := f.Acknowledge(2); err != nil {
		t.Fatal(err)
	}
	save(t, f, 4)
	if err := trySave(f, 5); !errors.Is(err, ErrBusy) {
		t.Fatalf("slots of 2, 3 and 4 may be needed: %v", err)
	}
	if _, _, err := f.RestoreStep(model(0), 2); err != nil {
		t.Fatal(err)
	}
	if got := f.committed(); !slices.Equal(got, []uint64{2}) {
		t.Errorf("steps %v left after going back to 2", got)
	}
	if err := f.Acknowledge(77); !errors.Is(err, ErrUsage) {
		t.Errorf("acknowledged what was never committed: %v", err)
	}
}

// The power fails on all ranks at any moment, while they save and while they recover: all come back to one step, not
// before the last that was told to be durable.
func TestPowerLossOfSet(t *testing.T) {
	const ranks = 2
	j := &journal{}
	var memories []*Memory
	var creators []func([]Array, Options) (*File, error)
	for i := range ranks {
		memories = append(memories, NewMemory(nil))
		creators = append(creators, func(part []Array, o Options) (*File, error) {
			return CreateOn(recorded{memories[i], i, j}, part, o)
		})
	}
	s, err := createSet(creators, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var disks []*disk
	for _, m := range memories {
		disks = append(disks, &disk{unit: 512, durable: m.Contents(), late: map[int64][][]byte{}})
	}
	j.events = nil
	for step := uint64(1); step <= 5; step++ {
		saveSet(s, step, t)
		j.add(event{kind: "ack", step: step})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	recover := func(storages []Storage, acked uint64) (*Set, uint64) {
		t.Helper()
		var files []*File
		for _, d := range storages {
			f, err := OpenOn(d, nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		s, err := newSet(files, model(0))
		if err != nil {
			t.Fatal(err)
		}
		step, err := setHolds(s)
		if err != nil && (acked > 0 || !errors.Is(err, ErrEmpty)) {
			t.Fatalf("acknowledged %d: %v", acked, err)
		}
		if step < acked {
			t.Fatalf("step %d restored, %d was acknowledged", step, acked)
		}
		return s, step
	}
	acked := uint64(0)
	for _, e := range j.events {
		for range 3 {
			var storages []Storage
			for _, d := range disks {
				storages = append(storages, d.crash(func(n int) int { return r.IntN(n + 1) }))
			}
			// Killed within the recovery: what it writes after some moment never arrives.
			left := r.IntN(4)
			var cut []Storage
			for _, d := range storages {
				cut = append(cut, &dying{Storage: d, left: &left})
			}
			first, step := recover(cut, acked)
			second, again := recover(storages, acked)
			if again != step {
				t.Fatalf("recovered to step %d, then to %d", step, again)
			}
			if err := errors.Join(first.Close(), second.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if e.kind == "ack" {
			acked = e.step
			continue
		}
		disks[e.disk].apply(e)
	}
}

// dying takes some writes and forgets all later ones.
type dying struct {
	Storage
	left *int
}

func (d *dying) WriteAt(p []byte, at int64) (int, error) {
	if *d.left--; *d.left < 0 {
		return len(p), nil
	}
	return d.Storage.WriteAt(p, at)
}

// A rank's file from before its job went back and saved the same step again.
func TestSetOfTwoSaves(t *testing.T) {
	paths := setPaths(t, 2)
	s, err := CreateSet(paths, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setHolds(s); !errors.Is(err, ErrEmpty) {
		t.Fatal(err)
	}
	saveSet(s, 1, t)
	saveSet(s, 2, t)
	old, err := os.ReadFile(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RestoreStep(model(0), 1); err != nil {
		t.Fatal(err)
	}
	saveSet(s, 2, t)
	if err := errors.Join(s.Close(), os.WriteFile(paths[1], old, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err = OpenSet(paths, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if step, err := setHolds(s); step != 1 {
		t.Errorf("restored step %d, %v", step, err)
	}
}
