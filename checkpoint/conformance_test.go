package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"evenkeel/internal/pytorch"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The Python writer and reader stand before the same judges as Go's: every crash of a recorded run, and what both readers
// say of damaged files. python/tests/conform_checkpoint.py is its half.
const conformScript = "../python/tests/conform_checkpoint.py"

func python(t *testing.T, args ...string) []byte {
	t.Helper()
	if race.Enabled {
		t.Skip("what Python does is the same without the race detector")
	}
	cmd := exec.Command(pytorch.Python(t), append([]string{conformScript}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return out
}

// pythonRun is what the Python writer did: the file it made, and the events from then on.
func pythonRun(t *testing.T, slots int, how ...string) (first []byte, events []event) {
	t.Helper()
	var made []event
	lines := bufio.NewScanner(bytes.NewReader(python(t, append([]string{"record", t.TempDir(), fmt.Sprint(slots)}, how...)...)))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e struct {
			Kind string
			At   int64
			Data []byte
			Step uint64
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "unsupported" {
			t.Skip("this file system has no direct input and output")
		}
		if e.Kind == "created" {
			first = make([]byte, e.At)
			if made[len(made)-1].kind != "flush" {
				t.Error("a file was made without a flush at its end")
			}
			for _, w := range made {
				copy(first[w.at:], w.data)
			}
			continue
		}
		ev := event{kind: e.Kind, at: e.At, data: e.Data, step: e.Step}
		if first == nil {
			made = append(made, ev)
		} else {
			events = append(events, ev)
		}
	}
	return first, events
}

func TestPythonWriter(t *testing.T) {
	slow.Skip(t)
	for _, c := range []struct {
		slots int
		how   []string
	}{{2, nil}, {3, nil}, {2, []string{"past"}}, {3, []string{"past"}}} {
		slots := c.slots
		first, events := pythonRun(t, slots, c.how...)
		if err := judge(first, events, 512, false); err != nil {
			t.Errorf("%d slots: %v", slots, err)
		}
		place := layout{slices.Clone(first)}
		var flushes []int
		for i, e := range events {
			if e.kind == "flush" {
				flushes = append(flushes, i)
			}
		}
		// Any kind of flush left out is caught. What stands before it tells the kinds apart.
		for _, before := range []string{"manifest", "word"} {
			var without []event
			for i, e := range events {
				if e.kind == "flush" && i > 0 && bytes.HasPrefix([]byte(place.name(events[i-1].at)), []byte(before)) {
					continue
				}
				without = append(without, e)
			}
			if len(without) == len(events) {
				t.Fatalf("no flush follows a %s", before)
			}
			if judge(first, without, 512, false) == nil {
				t.Errorf("%d slots: flushes after %s left out, and not caught", slots, before)
			}
		}
		if want := map[int]int{2: 3, 3: 2}[slots] * 7; len(flushes) > want+4 {
			t.Errorf("%d slots: %d flushes for 7 saves, want about %d", slots, len(flushes), want)
		}
	}
}

type trial struct {
	Patches [][2]any `json:"patches"`
	Cut     int64    `json:"cut,omitempty"`
}

// Both readers say the same of files with damage of every kind.
func TestReadersAgree(t *testing.T) {
	slow.Skip(t)
	const trials = 240
	run := recordDisks(t, 3, 1)
	h := run.heads[0]
	now, before := run.after(0, 7)
	base := slices.Clone(run.first[0])
	for at, page := range now {
		copy(base[at:], page)
	}
	older := func() *header { // a sound superblock of another file of the same model
		f, err := CreateOn(NewMemory(nil), model(0), Options{Slots: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.head
	}()
	r := rand.New(rand.NewPCG(7, 8))
	all := make([]trial, trials)
	for i := range all {
		c := &all[i]
		c.Patches = [][2]any{}
		patch := func(at int64, data []byte) {
			c.Patches = append(c.Patches, [2]any{at, data})
		}
		switch i % 6 {
		case 0, 1, 2:
			after, _ := damagePages(r, h, run.first[0], now, before, []string{"zeroed", "swapped", "lost"}[i%6])
			for _, at := range slices.Sorted(keysOfPages(now, after)) {
				page, ok := after[at]
				if !ok {
					page = run.first[0][at : at+block]
				}
				if !bytes.Equal(page, base[at:at+block]) {
					patch(at, page)
				}
			}
		case 3: // a flipped bit where it counts
			at := []int64{0, block, h.tables[0], h.record(r.IntN(3)), h.slot(r.IntN(3)) + h.manifestAt}[r.IntN(5)] + r.Int64N(72)
			patch(at, []byte{base[at] ^ 1<<r.IntN(8)})
		case 4:
			c.Cut = []int64{h.size - 1, h.size - h.slotSize, h.firstSlot + h.slotSize, h.firstSlot, 2 * block, 100, 3}[r.IntN(7)]
		default: // superblocks of another version or of another file
			other := older.superblock(older.table())
			if r.IntN(2) == 0 {
				other = slices.Clone(base[:block])
				other[8] = byte(r.IntN(4))
			}
			patch(int64(r.IntN(2))*block, other)
		}
	}
	dir := t.TempDir()
	path, patches := filepath.Join(dir, "run.ckpt"), filepath.Join(dir, "patches.json")
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, base, 0o600), os.WriteFile(patches, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	type verdict struct {
		Kind string
		Step uint64
		Said bool
	}
	lines := bytes.Split(bytes.TrimSpace(python(t, "read", path, patches)), []byte("\n"))
	if len(lines) != trials {
		t.Fatalf("%d verdicts of %d", len(lines), trials)
	}
	kinds := map[string]int{}
	for i, c := range all {
		var theirs verdict
		if err := json.Unmarshal(lines[i], &theirs); err != nil {
			t.Fatal(err)
		}
		var kept [][]byte
		for _, p := range c.Patches {
			at, data := p[0].(int64), p[1].([]byte)
			kept = append(kept, slices.Clone(base[at:at+int64(len(data))]))
			copy(base[at:], data)
		}
		image := base
		if c.Cut > 0 {
			image = base[:c.Cut]
		}
		step, report, err := openDamaged(t, image)
		for k, p := range slices.Backward(c.Patches) {
			copy(base[p[0].(int64):], kept[k])
		}
		ours := verdict{Kind: "restored", Step: step}
		for _, s := range report.Slots {
			ours.Said = ours.Said || s.Fault != ""
		}
		ours.Said = ours.Said || slices.ContainsFunc(report.Damage, func(d string) bool {
			return !bytes.HasPrefix([]byte(d), []byte("superblock")) && !bytes.HasPrefix([]byte(d), []byte("table"))
		})
		switch {
		case errors.Is(err, ErrEmpty):
			ours = verdict{Kind: "empty"}
		case errors.Is(err, ErrCorrupt):
			ours = verdict{Kind: "damaged"}
		case err != nil:
			ours = verdict{Kind: "format"}
		}
		kinds[ours.Kind]++
		if ours.Said != theirs.Said && ours.Kind == "restored" && ours.Step < 7 || ours.Kind != theirs.Kind || ours.Step != theirs.Step {
			t.Errorf("trial %d, case %d, cut %d: Go %+v (%v), Python %+v", i, i%6, c.Cut, ours, err, theirs)
		}
	}
	t.Log(kinds)
	if kinds["restored"] == 0 || kinds["damaged"] == 0 || kinds["format"] == 0 || kinds["empty"] > 0 {
		t.Errorf("outcomes %v", kinds)
	}
}

func keysOfPages(a, b map[int64][]byte) func(yield func(int64) bool) {
	all := map[int64][][]byte{}
	for _, m := range []map[int64][]byte{a, b} {
		for at := range m {
			all[at] = nil
		}
	}
	return keysOf(all)
}
