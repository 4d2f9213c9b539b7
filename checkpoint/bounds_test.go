package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Both ends of everything that a superblock may say: a reader takes what the format page allows, and nothing beyond it.
func TestSuperblockBounds(t *testing.T) {
	arrays := func(n int) []Array {
		var all []Array
		for i := range n {
			all = append(all, Array{Name: strings.Repeat("x", 1+i/26) + string(rune('a'+i%26)), DType: U8, Kind: Buffer, Shape: []int{1}})
		}
		return all
	}
	// grow makes room for n arrays of the least description.
	grow := func(h *header, n int) {
		h.arrays = make([]Array, n)
		h.tableLen = 20 * int64(n)
		h.tables = [2]int64{h.record(h.slots), align(h.record(h.slots)+h.tableLen, block)}
		h.firstSlot = align(h.tables[1]+h.tableLen, block)
		h.manifestSize = align(manifestHead+8*int64(n), block)
		h.slotSize = h.manifestAt + h.manifestSize
		h.size = h.firstSlot + int64(h.slots)*h.slotSize
	}
	for _, c := range []struct {
		name   string
		good   bool
		change func(h *header)
	}{
		{"as planned", true, func(*header) {}},
		{"the last rank", true, func(h *header) { h.rank, h.ranks = 2, 3 }},
		{"a rank too many", false, func(h *header) { h.rank, h.ranks = 3, 3 }},
		{"no ranks", false, func(h *header) { h.rank, h.ranks = 0, 0 }},
		{"two slots", true, func(h *header) { h.slots = 2; h.size = h.firstSlot + 2*h.slotSize }},
		{"one slot", false, func(h *header) { h.slots = 1; h.size = h.firstSlot + h.slotSize }},
		{"16 slots", true, func(h *header) { h.slots = 16; grow(h, 3) }},
		{"17 slots", false, func(h *header) { h.slots = 17; grow(h, 3) }},
		{"one array", true, func(h *header) { grow(h, 1) }},
		{"no array", false, func(h *header) { grow(h, 0) }},
		{"most arrays", true, func(h *header) { grow(h, 1<<20) }},
		{"more", false, func(h *header) { grow(h, 1<<20+1) }},
		{"a table too short", false, func(h *header) { grow(h, 3); h.tableLen-- }},
		{"the longest table", true, func(h *header) {
			h.tableLen = 256 << 20
			h.tables[1] = h.tables[0] + h.tableLen
			h.firstSlot = h.tables[1] + h.tableLen
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"a longer table", false, func(h *header) {
			h.tableLen = 256<<20 + 1
			h.tables[1] = h.tables[0] + 257<<20
			h.firstSlot = h.tables[1] + 257<<20
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"table A over the records", false, func(h *header) { h.tables[0] -= block }},
		{"table B right behind A", true, func(h *header) { h.tableLen = block; h.tables[1] = h.tables[0] + block }},
		{"table B over A", false, func(h *header) { h.tableLen = block + 1; h.tables[1] = h.tables[0] + block }},
		{"slots right behind table B", true, func(h *header) {
			h.tableLen = block
			h.tables[1] = h.tables[0] + block
			h.firstSlot = h.tables[1] + block
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"slots over table B", false, func(h *header) {
			h.tableLen = block + 1
			h.tables[1] = h.tables[0] + 2*block
			h.firstSlot = h.tables[1] + block
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"a manifest that just fits", true, func(h *header) { grow(h, 504) }}, // 64 + 8 * 504 is a block
		{"a manifest that does not", false, func(h *header) {
			grow(h, 505)
			h.manifestSize = block
			h.slotSize = h.manifestAt + block
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"a slot too short", false, func(h *header) {
			h.slotSize = h.manifestAt + h.manifestSize - block
			h.size = h.firstSlot + int64(h.slots)*h.slotSize
		}},
		{"another size", false, func(h *header) { h.size += block }},
		{"the largest file", true, func(h *header) { h.firstSlot = 1<<50 - int64(h.slots)*h.slotSize; h.size = 1 << 50 }},
		{"a larger file", false, func(h *header) { h.firstSlot = 1<<50 - int64(h.slots)*h.slotSize + block; h.size = 1<<50 + block }},
		{"a negative place", false, func(h *header) { h.tables[0] = -block }},
		{"a place within a block", false, func(h *header) { h.manifestAt++ }},
	} {
		h := plan(arrays(3), Options{}, [16]byte{7})
		c.change(h)
		got, _, err := parseSuperblock(h.superblock(nil))
		if c.good != (err == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Errorf("%s: error of no type: %v", c.name, err)
			}
			continue
		}
		if got.id != h.id || got.rank != h.rank || got.ranks != h.ranks || got.slots != h.slots || len(got.arrays) != len(h.arrays) || got.tableLen != h.tableLen ||
			got.tables != h.tables || got.firstSlot != h.firstSlot || got.slotSize != h.slotSize || got.manifestAt != h.manifestAt || got.manifestSize != h.manifestSize || got.size != h.size {
			t.Errorf("%s: %+v was read as %+v", c.name, h, got)
		}
	}
}

// A layout has no gaps that it does not need, and all of what it needs.
func TestPlan(t *testing.T) {
	arrays := []Array{
		{Name: "a", DType: U8, Kind: Buffer, Shape: []int{4096}}, {Name: "bc", DType: F32, Kind: Parameter, Shape: []int{1025}}, {Name: "d", DType: F64, Kind: Moment},
	}
	h := plan(arrays, Options{Slots: 2, StateBytes: 4096 - 64 - 24}, [16]byte{})
	if want := []int64{0, 4096, 4096 + 8192}; !slices.Equal(h.offsets, want) {
		t.Errorf("offsets %d, want %d", h.offsets, want)
	}
	const table = (2 + 1 + 3 + 8 + 16) + (2 + 2 + 3 + 8 + 16) + (2 + 1 + 3 + 16)
	if h.manifestAt != 4096*4 || h.manifestSize != 4096 || h.slotSize != 2<<20 || h.tableLen != table || h.tables != [2]int64{4 * 4096, 5 * 4096} || h.firstSlot != 2<<20 || h.size != 6<<20 {
		t.Errorf("%+v", h)
	}
	if h.bytes() != 4096+4100+8 {
		t.Errorf("%d bytes", h.bytes())
	}
	if h := plan(arrays, Options{Slots: 2, StateBytes: 4096 - 64 - 23}, [16]byte{}); h.manifestSize != 2*4096 {
		t.Errorf("room of %d bytes for a manifest of one more", h.manifestSize)
	}
	h = plan([]Array{{Name: "x", DType: U8, Shape: []int{3}}, arrays[1], {Name: "y", DType: U8, Shape: []int{4095}}, {Name: "z", DType: F64}}, Options{}, [16]byte{})
	if want := []int64{0, 8192, 8208, 8208 + 4096}; !slices.Equal(h.offsets, want) || h.arrays[1].Name != "x" || h.sharedAt() != 8192 || h.manifestAt != 4*4096 || h.superblock(nil)[8] != 3 {
		t.Errorf("small arrays: %+v", h)
	}
}

// A table that ends anywhere, or has places that cannot be, is refused.
func TestTableBounds(t *testing.T) {
	arrays := []Array{{Name: "a", DType: U8, Kind: Buffer, Shape: []int{2, 2048}}, {Name: "bc", DType: F32, Kind: Parameter, Shape: []int{1024}}}
	read := func(change func(h *header, table []byte) []byte) error {
		h := plan(arrays, Options{}, [16]byte{})
		table := change(h, h.table())
		got := *h
		got.arrays, got.offsets = make([]Array, len(arrays)), nil
		err := got.parseTable(table)
		if err == nil && (!slices.Equal(got.offsets, h.offsets) || sameArrays(arrays, got.arrays) != nil) {
			t.Errorf("%+v at %d were read as %+v at %d", arrays, h.offsets, got.arrays, got.offsets)
		}
		return err
	}
	whole := 0
	if err := read(func(_ *header, table []byte) []byte { whole = len(table); return table }); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := read(func(_ *header, table []byte) []byte { return table[:n] }); !errors.Is(err, ErrFormat) {
			t.Errorf("%d of %d bytes: %v", n, whole, err)
		}
	}
	if err := read(func(_ *header, table []byte) []byte { return append(table, make([]byte, 9)...) }); err != nil {
		t.Errorf("zeros behind: %v", err)
	}
	if err := read(func(_ *header, table []byte) []byte { return append(table, 0, 1) }); !errors.Is(err, ErrFormat) {
		t.Errorf("something behind: %v", err)
	}
	for name, place := range map[string]int64{"over the first": 0, "within a block": 4097, "over the manifest": 8192} {
		if err := read(func(h *header, _ []byte) []byte { h.offsets[1] = place; return h.table() }); !errors.Is(err, ErrFormat) {
			t.Errorf("an array %s: %v", name, err)
		}
	}
	arrays = []Array{{Name: "a", DType: U8, Kind: Buffer, Shape: []int{4098}}, {Name: "bc", DType: U8, Kind: Buffer, Shape: []int{9}}, {Name: "d", DType: U8, Kind: Buffer}}
	if err := read(func(_ *header, table []byte) []byte { return table }); err != nil {
		t.Fatal(err)
	}
	for place, i := range map[int64]int{4112: 1, 8208: 1, 8201: 2, 8192: 2, 8224: 2} {
		if err := read(func(h *header, _ []byte) []byte { h.offsets[i] = place; return h.table() }); !errors.Is(err, ErrFormat) {
			t.Errorf("a small array at %d: %v", place, err)
		}
	}
}

// Records and manifests: what is just possible is read, what is not is damage.
func TestRecordBounds(t *testing.T) {
	h := plan(model(0), Options{}, [16]byte{9})
	image := func(r record) []byte {
		body, word := r.encode(h.id)
		return le.AppendUint64(body, word)
	}
	good := record{slot: 2, sequence: 1, step: 77, manifestLen: manifestHead, manifestSum: 5}
	for _, r := range []record{good, {2, 1, 0, h.manifestSize, 0}, {2, 1 << 63, 1<<64 - 1, h.manifestSize, 1<<64 - 1}} {
		if got, committed, err := parseRecord(image(r), h, 2); got != r || !committed || err != nil {
			t.Errorf("%+v was read as %+v, %v, %v", r, got, committed, err)
		}
	}
	for _, r := range []record{{1, 1, 77, manifestHead, 5}, {2, 0, 77, manifestHead, 5}, {2, 1, 77, manifestHead - 1, 5}, {2, 1, 77, h.manifestSize + 1, 5}} {
		if got, committed, err := parseRecord(image(r), h, 2); committed || !errors.Is(err, ErrCorrupt) || got != (record{}) {
			t.Errorf("%+v was read as %+v, %v, %v", r, got, committed, err)
		}
	}
	if _, committed, err := parseRecord(make([]byte, wordAt+8), h, 0); committed || !errors.Is(err, ErrCorrupt) {
		t.Errorf("zeros: %v, %v", committed, err)
	}
	body, word := freeMarker(h.id, 2, note{sequence: 7})
	marker := le.AppendUint64(body, word)
	if _, committed, err := parseRecord(marker, h, 2); committed || err != nil {
		t.Errorf("a free slot: %v, %v", committed, err)
	}
	if _, committed, err := parseRecord(marker, h, 1); committed || !errors.Is(err, ErrCorrupt) {
		t.Errorf("another slot's marker: %v, %v", committed, err)
	}
	free := image(good)
	clear(free[wordAt:])
	if _, committed, err := parseRecord(free, h, 2); committed || err != nil {
		t.Errorf("a freed slot: %v, %v", committed, err)
	}
}

func TestManifestBounds(t *testing.T) {
	h := plan(model(0)[:2], Options{StateBytes: 4096 - manifestHead - 16}, [16]byte{9})
	s := State{Step: 6, Cursor: 7, Random: []byte{1, 2, 3}, Scalars: map[string]float64{"a": 1.5, "": 2, "long": -3}}
	r := record{sequence: 4, step: 6}
	b := encodeManifest(h.id, 4, []uint64{10, 11}, s, false)
	if len(b) != 64+2*8+3*10+1+0+4+3 {
		t.Errorf("a manifest of %d bytes", len(b))
	}
	hashes, got, err := parseManifest(b, h, r)
	if err != nil || !slices.Equal(hashes, []uint64{10, 11}) || got.Step != 6 || got.Cursor != 7 || string(got.Random) != "\x01\x02\x03" || len(got.Scalars) != 3 || got.Scalars["long"] != -3 {
		t.Errorf("%v, %+v, %v", hashes, got, err)
	}
	for n := range b {
		if _, _, err := parseManifest(b[:n], h, r); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, _, err := parseManifest(append(slices.Clone(b), 0), h, r); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
	for _, other := range []record{{sequence: 5, step: 6}, {sequence: 4, step: 7}} {
		if _, _, err := parseManifest(b, h, other); !errors.Is(err, ErrCorrupt) {
			t.Errorf("of record %+v: %v", other, err)
		}
	}
	// What the file has room for is taken to the byte.
	room := int(h.manifestSize) - manifestHead - 16
	for _, c := range []struct {
		s    State
		good bool
	}{
		{State{Random: make([]byte, room)}, true}, {State{Random: make([]byte, room+1)}, false},
		{State{Random: make([]byte, room-10-5), Scalars: map[string]float64{"12345": 1}}, true},
		{State{Random: make([]byte, room-10-4), Scalars: map[string]float64{"12345": 1}}, false},
		{State{Scalars: map[string]float64{strings.Repeat("n", 1024): 1}}, true}, {State{Scalars: map[string]float64{strings.Repeat("n", 1025): 1}}, false},
	} {
		if err := h.checkState(c.s); c.good != (err == nil) || err != nil && !errors.Is(err, ErrUsage) {
			t.Errorf("%d random bytes, %d scalars: %v", len(c.s.Random), len(c.s.Scalars), err)
		}
	}
}

// A slot that another process reuses while it is read is not believed, though every byte that was read was right.
func TestReusedWhileRead(t *testing.T) {
	m := NewMemory(nil)
	f, err := CreateOn(m, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	save(t, f, 1)
	save(t, f, 2)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenOn(m, nil, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	place := layout{m.Contents()}
	reader.storage = reusing{m, place.slot(1), place.word(1)}
	arrays := model(0)
	state, report, err := reader.Restore(arrays)
	if err != nil || state.Step != 1 || !strings.Contains(report.Slots[1].Fault, "reused") {
		t.Errorf("step %d, %+v, %v", state.Step, report, err)
	}
}

// reusing frees a slot as soon as its first array is read.
type reusing struct {
	*Memory
	array, word int64
}

func (r reusing) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.Memory.ReadAt(p, at)
	if at == r.array {
		if _, err := r.WriteAt(make([]byte, 8), r.word); err != nil {
			return 0, err
		}
	}
	return n, err
}

// Restore and Verify report how many bytes they read of how many.
func TestProgress(t *testing.T) {
	m := NewMemory(nil)
	f, err := CreateOn(m, model(0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	save(t, f, 1)
	save(t, f, 2)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	one := int64(0)
	for _, a := range model(0) {
		one += int64(len(a.Data))
	}
	for _, verify := range []bool{false, true} {
		var last, total int64
		f, err := OpenOn(m, nil, Options{ReadOnly: true, Progress: func(d, n int64) {
			if d < last || d > n {
				t.Errorf("%d of %d after %d", d, n, last)
			}
			last, total = d, n
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := one
		if verify {
			want = 2 * one
			_, err = f.Verify()
		} else {
			_, _, err = f.Restore(model(0))
		}
		if err != nil || last != want || total != want {
			t.Errorf("verify %v: %d of %d bytes, want %d; %v", verify, last, total, want, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
