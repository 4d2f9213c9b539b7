package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// recordRun makes checkpoints on a recorded disk and returns its first contents and its events.
func recordRun(t *testing.T, slots int, mode Mode) (first []byte, h *header, events []event) {
	t.Helper()
	j := &journal{}
	m := NewMemory(nil)
	f, err := CreateOn(recorded{m, 0, j}, model(0), Options{Slots: slots, Mode: mode, WhenFull: Block})
	if err != nil {
		t.Fatal(err)
	}
	first = m.Contents()
	j.events = nil
	for step := uint64(1); step <= 6; step++ {
		if step == 4 { // one that is given up half-way
			s, err := f.Begin(t.Context(), 400)
			if err != nil {
				t.Fatal(err)
			}
			a := model(400)[0]
			if err := s.Write(a.Name, a.Data); err != nil {
				t.Fatal(err)
			}
			s.Abort()
			f.Ready(a.Name)
		}
		save(t, f, step)
		j.add(event{kind: "ack", step: step})
	}
	for step := uint64(7); step <= 10; step++ { // each begins while the one before is still written
		s, err := f.Begin(t.Context(), step)
		if err != nil {
			t.Fatal(err)
		}
		s.settled = func(err error) { j.add(event{kind: "ack", step: step}) }
		for _, a := range model(step) {
			f.Ready(a.Name)
			if err := s.Write(a.Name, a.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(state(step)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return first, f.head, j.events
}

// judge lets the power fail after every event and says what is wrong with what is found then: each restore must give
// one whole step, not before the last acknowledged one; and a loss of power must never look like damage.
func judge(first []byte, events []event, unit int64, fences bool) error {
	d := &disk{unit: unit, fences: fences, durable: slices.Clone(first), late: map[int64][][]byte{}}
	r := rand.New(rand.NewPCG(1, 2))
	acked := uint64(0)
	models := map[uint64][]Array{}
	for k := range len(events) + 1 {
		for c, keep := range crashes(r) {
			if err := inspect(d.crash(keep), acked, models); err != nil {
				return fmt.Errorf("power lost before event %d, way %d: %w", k, c, err)
			}
		}
		if k < len(events) {
			d.apply(events[k])
			acked = max(acked, events[k].step)
		}
	}
	return nil
}

func inspect(s Storage, acked uint64, models map[uint64][]Array) error {
	f, err := OpenOn(s, nil, Options{ReadOnly: true})
	if err != nil {
		return err
	}
	arrays := model(0)
	got, _, err := f.Restore(arrays)
	if errors.Is(err, ErrEmpty) && acked == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if got.Step < acked {
		return fmt.Errorf("step %d restored, %d was acknowledged", got.Step, acked)
	}
	report, err := f.Verify()
	if err != nil {
		return err
	}
	for _, d := range report.Damage {
		if !strings.HasPrefix(d, "superblock") && !strings.HasPrefix(d, "table") { // those were damaged before, in one test
			return fmt.Errorf("looks like damage: %q", d)
		}
	}
	for _, s := range report.Slots {
		if s.Fault != "" {
			return fmt.Errorf("looks like damage: %+v", s)
		}
	}
	want := models[got.Step]
	if want == nil {
		want = model(got.Step)
		models[got.Step] = want
	}
	for i, a := range arrays {
		if !bytes.Equal(a.Data, want[i].Data) {
			return fmt.Errorf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	return nil
}

// storageKinds are the two models of what a storage may lose.
var storageKinds = []struct {
	name   string
	unit   int64
	fences bool
}{{"file", 512, false}, {"DAX", 8, true}}

func TestPowerLoss(t *testing.T) {
	for _, kind := range storageKinds {
		for _, slots := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s with %d slots", kind.name, slots), func(t *testing.T) {
				first, _, events := recordRun(t, slots, Mode(slots%2))
				if err := judge(first, events, kind.unit, kind.fences); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Each mutant breaks the commit order in one way, and must be caught: else TestPowerLoss proves nothing.
func TestMutants(t *testing.T) {
	for _, slots := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) { testMutants(t, slots) })
	}
}

func testMutants(t *testing.T, slots int) {
	first, h, events := recordRun(t, slots, ZeroCopy)
	// The kinds of writes to a record: clear, the bodies of markers and records, their words.
	for i, body := 0, ""; i < len(events); i++ {
		e := &events[i]
		for slot := range h.slots {
			switch {
			case e.kind != "write":
			case e.at == h.record(slot):
				body = string(e.data[:8])
				e.what = map[string]string{freeMagic: "marker", recordMagic: "record"}[body]
			case e.at == h.record(slot)+wordAt && le.Uint64(e.data) == 0:
				e.what = "clear"
			case e.at == h.record(slot)+wordAt:
				e.what = map[string]string{freeMagic: "free", recordMagic: "commit"}[body]
			case e.at > h.record(slot) && e.at < h.record(slot)+block:
				e.what = "note"
			}
		}
	}
	is := func(what ...string) func(event) bool {
		return func(e event) bool { return e.kind == "write" && slices.Contains(what, e.what) }
	}
	isFree, isCommit := is("free"), is("commit")
	isManifest := func(e event) bool {
		return e.kind == "write" && bytes.HasPrefix(e.data, []byte(manifestMagic))
	}
	isRecord := is("record")
	// without drops the events for which drop says so, given the last write before them.
	without := func(drop func(last, e event) bool) []event {
		var out []event
		var last event
		for _, e := range events {
			if !drop(last, e) {
				out = append(out, e)
			}
			if e.kind == "write" {
				last = e
			}
		}
		return out
	}
	// moved brings every event of one kind before the last one of another.
	moved := func(what, before func(e event) bool) []event {
		out := slices.Clone(events)
		for i, e := range out {
			if !what(e) {
				continue
			}
			for k := i - 1; k >= 0; k-- {
				if before(out[k]) {
					copy(out[k+1:i+1], out[k:i])
					out[k] = e
					break
				}
			}
		}
		return out
	}
	flush := func(e event) bool { return e.kind == "flush" }
	for _, m := range []struct {
		name   string
		events []event
		kinds  string // of storage that it must be caught on
	}{
		{"no flush after freeing or of the record", without(func(last, e event) bool { return flush(e) && (isFree(last) || isCommit(last)) }), "file DAX"},
		{"no flush of the arrays", without(func(last, e event) bool { return flush(e) && isManifest(last) }), "file"}, // the fence does it too
		{"no fence in the record", without(func(last, e event) bool { return e.kind == "fence" && isRecord(last) }), "DAX"},
		{"no fence before the record", without(func(last, e event) bool { return e.kind == "fence" && is("clear")(last) }), "DAX"},
		{"word not cleared", without(func(_, e event) bool { return is("clear")(e) }), "file DAX"},
		{"no invalidation", without(func(_, e event) bool { return is("clear", "marker", "free")(e) }), "file DAX"},
		{"notes before their save", moved(is("note"), flush), "file"},
		{"record before manifest", moved(isCommit, isManifest), "file DAX"},
		{"manifest after its flush", moved(flush, isManifest), "file DAX"},
		{"commit word before record", moved(isCommit, isRecord), "DAX"},
		{"acknowledged before the flush", moved(func(e event) bool { return e.kind == "ack" }, flush), "file DAX"},
		{"slot 0 always", alwaysSlot0(t, h), "file DAX"},
	} {
		for _, kind := range storageKinds {
			err := judge(first, m.events, kind.unit, kind.fences)
			if must := strings.Contains(m.kinds, kind.name); must && err == nil {
				t.Errorf("%s on %s: not caught", m.name, kind.name)
			} else if err != nil {
				t.Logf("%s on %s: %v", m.name, kind.name, err)
			}
		}
	}
}

// alwaysSlot0 records the commit order with slot 0 taken every time.
func alwaysSlot0(t *testing.T, h *header) []event {
	t.Helper()
	j := &journal{}
	m := NewMemory(nil)
	if err := m.Allocate(h.size, nil); err != nil {
		t.Fatal(err)
	}
	s := recorded{m, 0, j}
	last := note{generation: 1}
	for step := uint64(1); step <= 4; step++ {
		if err := freeSlot(s, h, 0, last); err != nil {
			t.Fatal(err)
		}
		var hashes []uint64
		for i, a := range model(step) {
			if err := writeFull(s, a.Data, h.slot(0)+h.offsets[i]); err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, hash(a.Data))
		}
		if _, err := commitSlot(s, h, record{slot: 0, sequence: step, step: step}, encodeManifest(h.id, step, hashes, state(step), false), -1, last); err != nil {
			t.Fatal(err)
		}
		j.add(event{kind: "ack", step: step})
	}
	return j.events
}

// The repair of a damaged copy may be interrupted too.
func TestPowerLossDuringRepair(t *testing.T) {
	first, h, events := recordRun(t, 2, ZeroCopy)
	whole := &disk{unit: 512, durable: first, late: map[int64][][]byte{}}
	for _, e := range events {
		whole.apply(e)
	}
	for _, damage := range []int64{20, block + 30, h.tables[0] + 9, h.tables[1] + 9} {
		image := slices.Clone(whole.durable)
		image[damage] ^= 4
		j := &journal{}
		f, err := OpenOn(recorded{NewMemory(slices.Clone(image)), 0, j}, model(0), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if report := restored(t, f, 10); len(report.Damage) != 1 {
			t.Errorf("damage at %d: report is %q", damage, report.Damage)
		}
		f.Close()
		j.events = append(j.events, event{kind: "ack", step: 10})
		if err := judge(image, append([]event{{kind: "ack", step: 10}}, j.events...), 512, false); err != nil {
			t.Errorf("damage at %d: %v", damage, err)
		}
	}
}

// A creation that is cut leaves what is refused, or an empty file: under its name it appears only after its last flush.
func TestPowerLossDuringCreation(t *testing.T) {
	for _, kind := range storageKinds {
		j := &journal{}
		m := NewMemory(nil)
		f, err := CreateOn(recorded{m, 0, j}, model(0), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if last := j.events[len(j.events)-1]; last.kind != "flush" {
			t.Errorf("the last event is a %s", last.kind)
		}
		d := &disk{unit: kind.unit, fences: kind.fences, durable: make([]byte, f.head.size), late: map[int64][][]byte{}}
		r := rand.New(rand.NewPCG(3, 2))
		for k := range len(j.events) + 1 {
			for c, keep := range crashes(r) {
				g, err := OpenOn(d.crash(keep), nil, Options{ReadOnly: true})
				if err == nil {
					_, _, err = g.Restore(model(0))
				}
				if whole := k == len(j.events); err == nil || !typed(err) && !errors.Is(err, ErrEmpty) || whole && !errors.Is(err, ErrEmpty) {
					t.Fatalf("%s: power lost before event %d, way %d: %v", kind.name, k, c, err)
				}
			}
			if k < len(j.events) {
				d.apply(j.events[k])
			}
		}
	}
}
