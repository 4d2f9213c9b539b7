package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/zeebo/xxh3"
)

// layout finds places in a file from the tables of docs/reference/formats/checkpoint.md alone.
type layout struct{ image []byte }

func (l layout) number(at int64) int64   { return int64(binary.LittleEndian.Uint64(l.image[at:])) }
func (l layout) record(slot int) int64   { return 4096 * int64(2+slot) }
func (l layout) word(slot int) int64     { return l.record(slot) + 64 }
func (l layout) slot(slot int) int64     { return l.number(80) + int64(slot)*l.number(88) }
func (l layout) manifest(slot int) int64 { return l.slot(slot) + l.number(96) }
func (l layout) committed(slot int) bool {
	return l.number(l.word(slot)) != 0 && string(l.image[l.record(slot):][:8]) == "EVKLRECD"
}
func (l layout) sequence(slot int) int64 { return l.number(l.record(slot) + 32) }
func (l layout) step(slot int) uint64    { return uint64(l.number(l.record(slot) + 40)) }
func (l layout) name(at int64) (what string) {
	slots := int(binary.LittleEndian.Uint32(l.image[40:]))
	for slot := range slots {
		switch {
		case at == l.record(slot):
			return fmt.Sprintf("record %d", slot)
		case at == l.record(slot)+512 || at == l.record(slot)+1024:
			return fmt.Sprintf("note %d", slot)
		case at == l.word(slot):
			return fmt.Sprintf("word %d", slot)
		case at >= l.slot(slot) && at < l.manifest(slot):
			return fmt.Sprintf("array %d", slot)
		case at == l.manifest(slot):
			return fmt.Sprintf("manifest %d", slot)
		}
	}
	return fmt.Sprintf("byte %d", at)
}

// trace is what a storage saw, an array's pieces as one.
func (l layout) trace(events []event) []string {
	var out []string
	for _, e := range events {
		what := e.kind
		if e.kind == "write" {
			if what = l.name(e.at); strings.HasPrefix(what, "word") && binary.LittleEndian.Uint64(e.data) == 0 {
				what = "free" + strings.TrimPrefix(what, "word")
			} else if strings.HasPrefix(what, "record") && string(e.data[:8]) == "EVKLFREE" {
				what = "marker" + strings.TrimPrefix(what, "record")
			}
		}
		if len(out) == 0 || out[len(out)-1] != what || !strings.HasPrefix(what, "array") {
			out = append(out, what)
		}
	}
	return out
}

func onJournal(t *testing.T, o Options) (*File, *Memory, *journal) {
	t.Helper()
	j, m := &journal{}, NewMemory(nil)
	f, err := CreateOn(recorded{m, 0, j}, model(0), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, m, j
}

// The order of writes, fences and flushes is the format page's, and every slot is used in turn.
func TestOrderOfWrites(t *testing.T) {
	f, m, j := onJournal(t, Options{Slots: 3})
	place := layout{m.Contents()}
	if got, want := place.trace(j.events), []string{"byte 20480", "byte 24576", "byte 0", "byte 4096", "note 0", "note 1", "note 2",
		"free 0", "fence", "marker 0", "fence", "word 0", "free 1", "fence", "marker 1", "fence", "word 1", "free 2", "fence", "marker 2", "fence", "word 2", "flush"}; !slices.Equal(got, want) {
		t.Errorf("creation: %q, want %q", got, want)
	}
	for step := uint64(1); step <= 5; step++ {
		j.events = nil
		save(t, f, step)
		slot := int(step-1) % 3
		var want []string
		for _, s := range []string{"array %d", "manifest %d", "flush", "free %d", "fence", "record %d", "fence", "word %d"} {
			if strings.Contains(s, "%") {
				s = fmt.Sprintf(s, slot)
			}
			want = append(want, s)
		}
		if step > 2 { // the slot of the next save is freed together with this commit
			n := (slot + 1) % 3
			want = append(want, fmt.Sprintf("free %d", n), "fence", fmt.Sprintf("marker %d", n), "fence", fmt.Sprintf("word %d", n))
		}
		want = append(want, "flush", "note 0", "note 1", "note 2")
		if got := place.trace(j.events); !slices.Equal(got, want) {
			t.Errorf("step %d: %q, want %q", step, got, want)
		}
		now := layout{m.Contents()}
		if now.step(slot) != step || now.sequence(slot) != int64(step) {
			t.Errorf("step %d: the record holds step %d, sequence %d", step, now.step(slot), now.sequence(slot))
		}
		if body := now.image[now.record(slot):][:64]; uint64(now.number(now.word(slot))) != xxh3.Hash(body)|1 {
			t.Errorf("step %d: the commit word is not the record's checksum", step)
		}
	}
}

// Nothing is reported as saved before its last flush has returned.
func TestReportedAfterTheFlush(t *testing.T) {
	m := NewMemory(nil)
	f, err := CreateOn(m, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gate := &gated{Storage: m, enter: make(chan struct{}), leave: make(chan struct{})}
	f.storage = gate
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
	for range 2 { // before the record, after the record
		select {
		case <-gate.enter:
		case <-s.done:
			t.Fatal("reported with fewer flushes")
		}
		select {
		case <-s.done:
			t.Error("reported before a flush returned")
		default:
		}
		if n := f.Stats().Committed; n != 0 {
			t.Errorf("%d counted before a flush returned", n)
		}
		gate.leave <- struct{}{}
	}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.storage = m
	if got := f.Stats(); got.Committed != 1 {
		t.Errorf("stats %+v", got)
	}
}

// gated is a storage whose flushes wait.
type gated struct {
	Storage
	enter, leave chan struct{}
}

func (g *gated) Flush() error {
	g.enter <- struct{}{}
	<-g.leave
	return g.Storage.Flush()
}

// A slot that does not verify is free: the next save goes there, not over what is good.
func TestDamagedSlotIsTheNextOne(t *testing.T) {
	for _, verify := range []bool{false, true} {
		f, m, j := onJournal(t, Options{Slots: 2})
		save(t, f, 1)
		save(t, f, 2)
		place := layout{m.Contents()}
		if _, err := m.WriteAt([]byte{0xEE, 0xEE}, place.slot(1)+5); err != nil {
			t.Fatal(err)
		}
		if verify {
			if _, err := f.Verify(); err != nil {
				t.Fatal(err)
			}
		}
		restored(t, f, 1)
		j.events = nil
		save(t, f, 3)
		if got := place.trace(j.events); got[0] != "free 1" || slices.Contains(got, "free 0") {
			t.Errorf("verified %v: after damage to slot 1 the next save did %q", verify, got)
		}
		restored(t, f, 3)
	}
}

// The newest that all ranks have is known to the rank even if the others' word for an older one comes later.
func TestAcknowledgeOutOfOrder(t *testing.T) {
	f, err := CreateOn(NewMemory(nil), model(0), Options{Ranks: 2, ID: [16]byte{1}, WhenFull: Fail})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for step := uint64(1); step <= 3; step++ {
		save(t, f, step)
	}
	for _, step := range []uint64{3, 2} {
		if err := f.Acknowledge(step); err != nil {
			t.Fatal(err)
		}
	}
	save(t, f, 4)
	save(t, f, 5) // over step 2
	if got := f.committed(); !slices.Equal(got, []uint64{5, 4, 3}) {
		t.Errorf("steps %d are left", got)
	}
	if err := trySave(f, 6); !errors.Is(err, ErrBusy) {
		t.Errorf("over the newest that all have: %v", err)
	}
}

// A step that was saved twice counts by its newer checkpoint, in Acknowledge and in giveUpAfter.
func TestStepSavedTwice(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		f, err := CreateOn(NewMemory(nil), model(0), Options{Slots: 4, Ranks: 2, ID: [16]byte{1}, WhenFull: Fail})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []uint64{7, 8, 7} {
			save(t, f, step)
		}
		if giveUp {
			save(t, f, 9)
			if err := f.giveUpAfter(7); err != nil {
				t.Fatal(err)
			}
			if got := f.committed(); !slices.Equal(got, []uint64{7, 8, 7}) {
				t.Errorf("steps %d are left", got)
			}
		} else {
			if err := f.Acknowledge(7); err != nil {
				t.Fatal(err)
			}
			for step := uint64(9); step <= 11; step++ { // a free slot, then those of the first 7 and of 8
				save(t, f, step)
			}
			if got := f.committed(); !slices.Equal(got, []uint64{11, 10, 9, 7}) {
				t.Errorf("steps %d are left", got)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is given up is freed on the storage too; a slot that cannot be freed is not trusted any more; a reader leaves all
// as it is.
func TestGiveUp(t *testing.T) {
	f, m, j := onJournal(t, Options{Slots: 4})
	for step := uint64(1); step <= 3; step++ {
		save(t, f, step)
	}
	reader, err := OpenOn(m, nil, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.giveUpAfter(1); err != nil || len(reader.committed()) != 3 {
		t.Errorf("a reader gave up: %v, %d left", err, reader.committed())
	}
	j.events = nil
	if err := f.giveUpAfter(2); err != nil {
		t.Fatal(err)
	}
	place := layout{m.Contents()}
	if got := place.trace(j.events); !slices.Equal(got, []string{"flush", "note 0", "note 1", "note 2", "note 3", "flush", "free 2", "fence", "marker 2", "fence", "word 2", "flush"}) {
		t.Errorf("giving up after step 2: %q", got)
	}
	if !place.committed(0) || !place.committed(1) || place.committed(2) || place.committed(3) {
		t.Error("other slots are free than that of step 3")
	}
	good := f.storage
	f.storage = &faulty{Storage: good, kind: "flush", then: 1, err: syscall.EIO}
	if err := f.giveUpAfter(1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.storage = good
	j.events = nil
	save(t, f, 5)
	save(t, f, 6)
	for _, what := range place.trace(j.events) {
		if strings.HasSuffix(what, " 1") && what != "note 1" {
			t.Errorf("slot 1 was used after its flush failed: %s", what)
		}
	}
}

// The oldest of several committed slots is reused, wherever it lies, and never the newest.
func TestChoose(t *testing.T) {
	slot := func(sequence uint64) slotState { return slotState{record: record{sequence: sequence}, committed: true} }
	free := slotState{}
	busy, poisoned := slot(1), slot(1)
	busy.busy, poisoned.poisoned = true, true
	for _, c := range []struct {
		slots     []slotState
		protected uint64
		want      int
	}{
		{[]slotState{slot(5), slot(3), slot(4)}, 5, 1},
		{[]slotState{slot(3), slot(5), slot(4)}, 5, 0},
		{[]slotState{slot(5), slot(4), slot(3)}, 5, 2},
		{[]slotState{slot(5), slot(4), free}, 5, 2},
		{[]slotState{free, slot(4), free}, 4, 0},
		{[]slotState{slot(5), busy, slot(3)}, 5, 2},
		{[]slotState{slot(5), poisoned, slot(3)}, 5, 2},
		{[]slotState{slot(5), busy}, 5, -1},
		{[]slotState{slot(5), slot(6)}, 5, -1}, // 5 is what all ranks have, 6 is not yet
		{[]slotState{slot(5), slot(4)}, 4, -1},
	} {
		if got := choose(c.slots, c.protected); got != c.want {
			t.Errorf("%+v, protected from %d: slot %d, want %d", c.slots, c.protected, got, c.want)
		}
	}
}
