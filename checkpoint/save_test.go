package checkpoint

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// With every slot taken Begin does what it was told to do.
func TestWhenFull(t *testing.T) {
	for _, full := range []WhenFull{Skip, Fail, Block} {
		m := NewMemory(nil)
		f, err := CreateOn(m, model(0), Options{Slots: 2, WhenFull: full})
		if err != nil {
			t.Fatal(err)
		}
		save(t, f, 1)
		gate := &gated{Storage: m, enter: make(chan struct{}), leave: make(chan struct{})}
		f.storage = gate
		s, err := f.Begin(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range model(2) {
			if err := s.Write(a.Name, a.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(state(2)); err != nil {
			t.Fatal(err)
		}
		<-gate.enter // slot 1 is being written, slot 0 holds the newest
		ctx, cancel := context.WithCancel(t.Context())
		if full == Block {
			cancel()
		}
		third, err := f.Begin(ctx, 3)
		skipped := 0
		switch full {
		case Skip:
			if skipped = 1; third != nil || err != nil {
				t.Errorf("skip: %v, %v", third, err)
			}
		case Fail:
			if !errors.Is(err, ErrBusy) {
				t.Errorf("fail: %v", err)
			}
		case Block:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("block: %v", err)
			}
		}
		cancel()
		if got := f.Stats().Skipped; got != skipped {
			t.Errorf("%d steps counted as skipped, want %d", got, skipped)
		}
		gate.leave <- struct{}{}
		<-gate.enter
		gate.leave <- struct{}{}
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.storage = m
		save(t, f, 3)
		if got := f.committed(); !slices.Equal(got, []uint64{3, 2}) {
			t.Errorf("steps %d are left", got)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Errors of a save in the background are returned once, by whoever asks first.
func TestErrorsAreReturnedOnce(t *testing.T) {
	for _, by := range []string{"Wait", "Begin", "Close"} {
		m := NewMemory(nil)
		f, err := CreateOn(m, model(0), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.storage = &faulty{Storage: m, kind: "flush", after: 1, then: 1, err: syscall.EIO}
		s, err := f.Begin(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range model(1) {
			if err := s.Write(a.Name, a.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(state(1)); err != nil {
			t.Fatal(err)
		}
		<-s.done
		failed := func(by string, err error) bool {
			return errors.Is(err, syscall.EIO) && strings.Contains(err.Error(), "step 1")
		}
		if by == "Wait" && !failed(by, s.Wait(t.Context())) {
			t.Error("Wait does not return the error")
		}
		if by == "Begin" {
			if _, err := f.Begin(t.Context(), 2); !failed(by, err) {
				t.Errorf("Begin returns %v", err)
			}
		}
		if by != "Close" {
			save(t, f, 2)
		}
		if err := f.Close(); (by == "Close") != failed(by, err) {
			t.Errorf("returned by %s, Close returns %v", by, err)
		}
	}
}
