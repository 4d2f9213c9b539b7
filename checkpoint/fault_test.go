package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/zeebo/xxh3"
)

// saved is a file with the checkpoints of steps 1 to 4.
func saved(t *testing.T) ([]byte, *header) {
	t.Helper()
	m := NewMemory(nil)
	f, err := CreateOn(m, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for step := uint64(1); step <= 4; step++ {
		save(t, f, step)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return m.Contents(), f.head
}

// typed are the errors that a damaged file may be told with.
func typed(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) || errors.Is(err, ErrVersion) || errors.Is(err, ErrEndian) || errors.Is(err, ErrSchema)
}

// openDamaged restores from a damaged file: the error is typed, or a whole step came back. It returns that step.
func openDamaged(t *testing.T, image []byte) (uint64, Report, error) {
	t.Helper()
	f, err := OpenOn(NewMemory(image), model(0), Options{ReadOnly: true})
	if err != nil {
		if !typed(err) {
			t.Fatalf("error of no type: %v", err)
		}
		return 0, Report{}, err
	}
	arrays := model(0)
	got, report, err := f.Restore(arrays)
	if err != nil {
		if !typed(err) {
			t.Fatalf("error of no type: %v", err)
		}
		return 0, report, err
	}
	for i, a := range model(got.Step) {
		if string(a.Data) != string(arrays[i].Data) {
			t.Fatalf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	if got.Cursor != 17*got.Step {
		t.Fatalf("state %+v is of another step", got)
	}
	return got.Step, report, nil
}

func TestBitFlips(t *testing.T) {
	image, h := saved(t)
	newest := 0 // step 4 went to the slot that step 1 had
	regions := []struct {
		name     string
		from, to int64
		step     uint64
	}{
		{"superblock A", 0, superLen, 4}, {"superblock B", block, block + superLen, 4},
		{"table A", h.tables[0], h.tables[0] + h.tableLen, 4}, {"table B", h.tables[1], h.tables[1] + h.tableLen, 4},
		{"newest record", h.record(newest), h.record(newest) + wordAt + 8, 3},
		{"oldest record", h.record(1), h.record(1) + wordAt + 8, 4},
		{"newest manifest", h.slot(newest) + h.manifestAt, h.slot(newest) + h.manifestAt + manifestHead + 8*int64(len(h.arrays)), 3},
		{"older manifest", h.slot(2) + h.manifestAt, h.slot(2) + h.manifestAt + manifestHead, 4},
		{"padding of a superblock", superLen, block, 4},
	}
	for i, a := range h.arrays {
		if a.Len() > 0 {
			at := h.slot(newest) + h.offsets[i]
			regions = append(regions, struct {
				name     string
				from, to int64
				step     uint64
			}{"array " + a.Name, at, at + a.Len(), 3})
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	flips := 60
	if testing.Short() {
		flips = 6
	}
	for _, g := range regions {
		for range flips {
			at, bit := g.from+r.Int64N(g.to-g.from), r.IntN(8)
			image[at] ^= 1 << bit
			step, report, err := openDamaged(t, image)
			if err != nil || step != g.step {
				t.Errorf("%s, byte %d, bit %d: step %d, %v; want step %d", g.name, at, bit, step, err, g.step)
			}
			if g.step == 3 && report.Slots[newest].Fault == "" {
				t.Errorf("%s: the report does not tell: %+v", g.name, report)
			}
			image[at] ^= 1 << bit
		}
	}
	// Many at once: anything but a mix or an empty file.
	for range flips {
		bad := slices.Clone(image[:h.firstSlot])
		rest := image[h.firstSlot:]
		for range 1 + r.IntN(40) {
			bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		}
		g := regions[r.IntN(len(regions))]
		at := g.from + r.Int64N(g.to-g.from)
		whole := append(bad, rest...)
		whole[at] ^= 0x10
		if _, _, err := openDamaged(t, whole); errors.Is(err, ErrEmpty) {
			t.Error("damage looks like an empty file")
		}
	}
	// Every record damaged: not empty.
	for slot := range h.slots {
		image[h.record(slot)+40] ^= 1
	}
	if _, _, err := openDamaged(t, image); !errors.Is(err, ErrCorrupt) {
		t.Errorf("all records damaged: %v", err)
	}
}

func TestTruncated(t *testing.T) {
	image, h := saved(t)
	at := []int64{0, 1, 7, superLen, block, block + superLen, 2 * block, h.tables[0], h.tables[0] + 5, h.tables[1], h.firstSlot, h.size - 1}
	for slot := range h.slots {
		at = append(at, h.record(slot), h.slot(slot), h.slot(slot)+h.manifestAt)
		for _, o := range h.offsets {
			at = append(at, h.slot(slot)+o+1)
		}
	}
	for _, n := range at {
		step, report, err := openDamaged(t, slices.Clone(image[:n]))
		switch whole := (n - h.firstSlot) / h.slotSize; { // step 4 is in the first slot, step 3 in the last
		case n < h.firstSlot+h.slotSize && (err == nil || errors.Is(err, ErrEmpty)):
			t.Errorf("cut at byte %d: %v", n, err)
		case n >= h.firstSlot+h.slotSize && (err != nil || step != 4 || len(report.Damage) == 0 || report.Slots[whole].Fault == ""):
			t.Errorf("cut at byte %d: step %d, %v, %+v", n, step, err, report)
		}
	}
}

func TestOtherFiles(t *testing.T) {
	image, _ := saved(t)
	both := func(change func(super []byte)) []byte {
		b := slices.Clone(image)
		for _, at := range []int{0, block} {
			change(b[at : at+superLen])
			binary.LittleEndian.PutUint64(b[at+superLen-8:], xxh3.Hash(b[at:at+superLen-8]))
		}
		return b
	}
	for _, c := range []struct {
		name  string
		image []byte
		want  error
	}{
		{"no checkpoint", make([]byte, 1<<16), ErrFormat},
		{"version 1", both(func(b []byte) { b[8] = 1 }), ErrVersion},
		{"version 4", both(func(b []byte) { b[8] = 4 }), ErrVersion},
		{"other byte order", both(func(b []byte) { slices.Reverse(b[endianAt : endianAt+4]) }), ErrEndian},
		{"one slot", both(func(b []byte) { b[40] = 1 }), ErrFormat},
		{"slots beyond the file", both(func(b []byte) { b[40] = 9 }), ErrFormat},
		{"huge table", both(func(b []byte) { b[51] = 0xff }), ErrFormat},
	} {
		if _, _, err := openDamaged(t, c.image); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	other := model(0)
	other[2].Name = "dense.weight.v"
	_, err := OpenOn(NewMemory(image), other, Options{ReadOnly: true})
	if !errors.Is(err, ErrSchema) || err.Error() != `array "dense.weight.v" is not in the file; is it another model's?: checkpoint: arrays differ` {
		t.Errorf("another model: %v", err)
	}
}

// The storage fails at every operation in turn. What was told to be durable is there, no step is mixed, and the
// failure is reported.
func TestStorageFails(t *testing.T) {
	for _, kind := range []string{"write", "short", "flush"} {
		for _, then := range []int{1, 1000} {
			for after := range 40 {
				if testing.Short() && after%3 != 0 {
					continue
				}
				m := NewMemory(nil)
				f, err := CreateOn(m, model(0), Options{})
				if err != nil {
					t.Fatal(err)
				}
				bad := &faulty{Storage: m, kind: kind, after: after, then: then, err: syscall.EIO}
				f.storage = bad
				acked, failed := uint64(0), 0
				for step := uint64(1); step <= 6; step++ {
					switch err := trySave(f, step); {
					case err == nil:
						acked = step
					case errors.Is(err, syscall.EIO), errors.Is(err, ErrPoisoned), kind == "short" && err != nil:
						failed++
					default:
						t.Fatalf("%s %d: %v", kind, after, err)
					}
				}
				if bad.after < 0 && failed == 0 {
					t.Errorf("%s %d: nobody was told", kind, after)
				}
				if err := f.Close(); err != nil {
					t.Errorf("%s %d: an error was told twice: %v", kind, after, err)
				}
				step, _, err := restoredStep(m)
				torn := kind == "short" && errors.Is(err, ErrCorrupt) // half a commit word, and nothing before it
				if err != nil && (acked > 0 || !errors.Is(err, ErrEmpty) && !torn) {
					t.Fatalf("%s %d: %v", kind, after, err)
				}
				if step < acked {
					t.Errorf("%s %d: step %d restored, %d was acknowledged", kind, after, step, acked)
				}
			}
		}
	}
}

func restoredStep(m *Memory) (uint64, Report, error) {
	f, err := OpenOn(m, model(0), Options{ReadOnly: true})
	if err != nil {
		return 0, Report{}, err
	}
	arrays := model(0)
	got, report, err := f.Restore(arrays)
	if err != nil {
		return 0, report, err
	}
	for i, a := range model(got.Step) {
		if string(a.Data) != string(arrays[i].Data) {
			return 0, report, fmt.Errorf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	return got.Step, report, nil
}

// After a flush that failed a slot is never written again: the kernel may call lost pages clean.
func TestPoisoned(t *testing.T) {
	j := &journal{}
	f, err := CreateOn(recorded{NewMemory(nil), 0, j}, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	save(t, f, 1)
	save(t, f, 2)
	good := f.storage
	f.storage = &faulty{Storage: good, kind: "flush", after: 1, then: 1, err: syscall.EIO}
	if err := trySave(f, 3); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	j.events = nil
	for step := uint64(4); step < 9; step++ {
		save(t, f, step)
	}
	for _, e := range j.events {
		if e.kind == "write" && e.at >= f.head.slot(2) {
			t.Fatalf("poisoned slot written at %d", e.at)
		}
	}
	f.storage = &faulty{Storage: good, kind: "flush", after: 0, then: 1, err: syscall.EIO}
	if err := trySave(f, 9); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := trySave(f, 10); !errors.Is(err, ErrPoisoned) {
		t.Errorf("one slot left: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.ckpt")
	huge := []Array{{Name: "huge", DType: F32, Shape: []int{1 << 40}, Kind: Parameter}} // 4 TiB, three times
	_, err := Create(path, huge, Options{})
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EFBIG) {
		t.Errorf("error is %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
