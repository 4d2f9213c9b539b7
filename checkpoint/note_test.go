package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// note is the newest note of a file, as the format page says: generation, sequence, step, and those of the newest save of
// all ranks.
func (l layout) note() []int64 {
	newest := make([]int64, 5)
	for slot := range int(l.number(40) & 0xFFFFFFFF) {
		for _, at := range []int64{512, 1024} {
			if at += l.record(slot); l.number(at+32) > newest[0] {
				for i := range newest {
					newest[i] = l.number(at + 32 + 8*int64(i))
				}
			}
		}
	}
	return newest
}

// A save's note says what was reported and what all ranks have. Giving up turns it back, and forgets what all ranks have
// only if that is given up too.
func TestNote(t *testing.T) {
	for _, c := range []struct {
		giveUp uint64
		want   []int64
	}{
		{3, []int64{4, 3, 3, 2, 2}}, // nothing was reported beyond it
		{2, []int64{5, 2, 2, 2, 2}},
		{1, []int64{5, 1, 1, 0, 0}},
	} {
		m := NewMemory(nil)
		f, err := CreateOn(m, model(0), Options{Slots: 4, Ranks: 2, ID: [16]byte{1}})
		if err != nil {
			t.Fatal(err)
		}
		notes := [][]int64{layout{m.Contents()}.note()}
		for step := uint64(1); step <= 3; step++ {
			save(t, f, step)
			if step == 2 {
				if err := f.Acknowledge(2); err != nil {
					t.Fatal(err)
				}
			}
			notes = append(notes, layout{m.Contents()}.note())
		}
		if want := [][]int64{{1, 0, 0, 0, 0}, {2, 1, 1, 0, 0}, {3, 2, 2, 0, 0}, {4, 3, 3, 2, 2}}; !slices.EqualFunc(notes, want, slices.Equal[[]int64]) {
			t.Fatalf("notes %v, want %v", notes, want)
		}
		if err := f.giveUpAfter(c.giveUp); err != nil {
			t.Fatal(err)
		}
		if got := (layout{m.Contents()}).note(); !slices.Equal(got, c.want) {
			t.Errorf("after giving up what came after step %d: note %v, want %v", c.giveUp, got, c.want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A manifest says whether another save was reported before its own (byte 60 of it).
func TestManifestTellsOfEarlier(t *testing.T) {
	m := NewMemory(nil)
	f, err := CreateOn(m, model(0), Options{Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for step := uint64(1); step <= 3; step++ {
		save(t, f, step)
		place, slot := layout{m.Contents()}, int(step-1)%2
		if got, want := place.image[place.manifest(slot)+60], byte(min(step-1, 1)); got != want {
			t.Errorf("step %d: byte 60 is %d, want %d", step, got, want)
		}
	}
}

// Of two sound superblocks the one counts whose file the record pages are of, wherever it lies; if none does, none is taken.
func TestSuperblocksOfTwoFiles(t *testing.T) {
	image := func(id byte, steps uint64) []byte {
		m := NewMemory(nil)
		f, err := CreateOn(m, model(0), Options{Slots: 2, ID: [16]byte{id}})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for step := uint64(1); step <= steps; step++ {
			save(t, f, step)
		}
		return m.Contents()
	}
	own, other := image(1, 3), image(2, 3)
	for _, at := range []int{0, 4096} {
		mixed := slices.Clone(own)
		copy(mixed[at:][:4096], other[at:])
		f, err := OpenOn(NewMemory(slices.Clone(mixed)), nil, Options{})
		if err != nil {
			t.Fatalf("the other's superblock at %d: %v", at, err)
		}
		report := restored(t, f, 3)
		if f.head.id != [16]byte{1} || !strings.Contains(strings.Join(report.Damage, "; "), "another file's") {
			t.Errorf("the other's superblock at %d: id %v, %v", at, f.head.id, report.Damage)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		copy(mixed[3*4096:][:4096], other[3*4096:]) // now each has one record page
		if _, err := OpenOn(NewMemory(mixed), nil, Options{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("as many pages of each, the other's superblock at %d: %v", at, err)
		}
	}
}

// Ranks are shared arrays out to from 1 up to as many as there are arrays; even many empty ones leave no rank without.
func TestStripeBounds(t *testing.T) {
	arrays := []Array{Of("a", Parameter, []float32{1}), Of("b", Buffer, []uint8{}, 0), Of("c", Buffer, []uint8{}, 0), Of("d", Buffer, []uint8{}, 0)}
	for ranks := -1; ranks <= 6; ranks++ {
		parts, err := Stripe(arrays, ranks)
		if good := ranks >= 1 && ranks <= 4; good != (err == nil) || err != nil && !errors.Is(err, ErrUsage) {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
		for r, p := range parts {
			if len(p) == 0 {
				t.Errorf("%d ranks: rank %d has no array", ranks, r)
			}
		}
	}
}
