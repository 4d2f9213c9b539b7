package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSafetensors(t *testing.T) {
	arrays, s := model(7), state(7)
	var first, second bytes.Buffer
	if err := WriteSafetensors(&first, arrays, s); err != nil {
		t.Fatal(err)
	}
	back, got, err := ReadSafetensors(bytes.NewReader(first.Bytes()), int64(first.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, got); diff != "" {
		t.Error(diff)
	}
	if err := sameArrays(back, arrays); err != nil {
		t.Error(err)
	}
	for _, a := range arrays {
		i := slices.IndexFunc(back, func(b Array) bool { return b.Name == a.Name })
		if !bytes.Equal(a.Data, back[i].Data) {
			t.Errorf("array %s differs", a.Name)
		}
	}
	slices.Reverse(arrays)
	if err := WriteSafetensors(&second, arrays, s); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the order of the arrays changes the file (%v)", err)
	}
	for _, n := range []int{0, 7, 8, 30, first.Len() - 1} {
		if _, _, err := ReadSafetensors(bytes.NewReader(first.Bytes()[:n]), int64(n)); !errors.Is(err, ErrFormat) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	// As another program writes it.
	text := `{"b":{"dtype":"I64","shape":[],"data_offsets":[4,12]},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}}`
	file := string(le.AppendUint64(nil, uint64(len(text)))) + text + strings.Repeat("x", 12)
	back, got, err = ReadSafetensors(strings.NewReader(file), int64(len(file)))
	if err != nil || len(back) != 2 || back[0].Name != "a" || back[1].Kind != Parameter || got.Step != 0 {
		t.Errorf("read %+v, %+v, %v", back, got, err)
	}
}

func FuzzReadSafetensors(f *testing.F) {
	var b bytes.Buffer
	if err := WriteSafetensors(&b, model(3), state(3)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, "{}"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		arrays, s, err := ReadSafetensors(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if err := WriteSafetensors(io.Discard, arrays, s); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// FuzzOpen gives anything for the head of a file, its records and its manifests.
func FuzzOpen(f *testing.F) {
	small := []Array{Of("w", Parameter, make([]float32, 4)), Of("m", Moment, make([]float64, 2), 2, 1)}
	m := NewMemory(nil)
	c, err := CreateOn(m, small, Options{Slots: 2})
	if err != nil {
		f.Fatal(err)
	}
	for step := range uint64(2) {
		s, err := c.Begin(f.Context(), step)
		if err != nil {
			f.Fatal(err)
		}
		for _, a := range small {
			if err := s.Write(a.Name, a.Data); err != nil {
				f.Fatal(err)
			}
		}
		if err := s.Commit(State{Random: []byte("r"), Scalars: map[string]float64{"x": 1}}); err != nil {
			f.Fatal(err)
		}
		if err := s.Wait(f.Context()); err != nil {
			f.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		f.Fatal(err)
	}
	whole, h := m.Contents(), c.head
	at := h.slot(0) + h.manifestAt
	f.Add(whole[:superLen], whole[h.tables[0]:h.tables[0]+h.tableLen], whole[h.record(0):h.record(0)+wordAt+8], whole[at:at+100], true)
	f.Fuzz(func(t *testing.T, super, table, record, manifest []byte, sums bool) {
		image := make([]byte, h.size)
		copy(image[:block], super)
		copy(image[h.tables[0]:h.tables[1]], table)
		copy(image[h.record(0):h.tables[0]], record)
		copy(image[at:], manifest)
		if sums { // past the checksums
			le.PutUint64(image[56:], hash(image[h.tables[0]:h.tables[0]+h.tableLen]))
			le.PutUint64(image[superLen-8:], hash(image[:superLen-8]))
			le.PutUint64(image[h.record(0)+wordAt:], hash(image[h.record(0):h.record(0)+wordAt])|1)
		}
		copy(image[block:], image[:block])
		file, err := OpenOn(NewMemory(image), nil, Options{ReadOnly: true})
		if err != nil {
			return
		}
		if _, err := file.Verify(); err != nil && !typed(err) {
			t.Errorf("error of no type: %v", err)
		}
		rec, _, err := parseRecord(image[h.record(0):], h, 0)
		if err == nil {
			_, _, _ = parseManifest(image[at:at+min(max(rec.manifestLen, 0), h.manifestSize)], h, rec)
		}
	})
}
