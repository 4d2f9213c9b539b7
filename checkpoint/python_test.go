package checkpoint

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file was written by python/evenkeel/checkpoint: it keeps the format, and the two implementations, where they
// are. python/tests has the other direction.
func TestPythonFile(t *testing.T) {
	packed, err := os.Open("testdata/python.ckpt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	w, m, seen := make([]float32, 6), make([]float64, 1), make([]int64, 1)
	moment := Of("w.m", Moment, m)
	moment.Shape = []int{}
	mask := Array{Name: "mask", DType: Bool, Shape: []int{3}, Kind: Buffer, Data: make([]byte, 3)}
	arrays := []Array{Of("w", Parameter, w, 2, 3), moment, Of("seen", Buffer, seen), mask}
	f, err := OpenOn(NewMemory(image), arrays, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, report, err := f.Restore(arrays)
	if err != nil {
		t.Fatal(err)
	}
	want := State{Step: 4, Cursor: 40, Random: []byte("random"), Scalars: map[string]float64{"rate": 0.5, "inf": math.Inf(1)}}
	if diff := cmp.Diff(want, got); diff != "" || report.Restored != 1 {
		t.Errorf("slot %d, %s", report.Restored, diff)
	}
	if w[4] != float32(4)/3 || !math.IsNaN(m[0]) || seen[0] != 4 || !bytes.Equal(mask.Data, []byte{1, 0, 1}) {
		t.Errorf("restored %v, %v, %v, %v", w, m, seen, mask.Data)
	}
}

// A file of version 1 is read and written on. Its records as zeros are not taken for a new file where a manifest tells of a
// save.
func TestVersion1(t *testing.T) {
	open := func(zeros int) (*File, []Array, *Memory) {
		t.Helper()
		packed, err := os.Open("testdata/python.ckpt.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		z, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		image, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		clear(image[2*block : (2+zeros)*block])
		m := NewMemory(image)
		f, err := OpenOn(m, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		arrays := f.Arrays()
		for i, a := range arrays {
			arrays[i].Data = make([]byte, a.Len())
		}
		return f, arrays, m
	}
	f, arrays, m := open(0)
	if _, _, err := f.Restore(arrays); err != nil {
		t.Fatal(err)
	}
	for step := uint64(5); step < 9; step++ {
		fill(arrays, step)
		if err := saveArrays(f, arrays, State{Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	again, err := OpenOn(NewMemory(m.Contents()), arrays, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(arrays[0].Data)
	clear(arrays[0].Data)
	if got, _, err := again.Restore(arrays); err != nil || got.Step != 8 || !bytes.Equal(arrays[0].Data, want) {
		t.Errorf("step %d, %v", got.Step, err)
	}
	if v := le.Uint32(m.Contents()[8:]); v != 1 {
		t.Errorf("version %d", v)
	}
	f.Close()
	f, arrays, _ = open(f.head.slots)
	defer f.Close()
	if _, _, err := f.Restore(arrays); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "manifest of step") {
		t.Errorf("records of zeros: %v", err)
	}
	if err := saveArrays(f, arrays, State{Step: 1}); err == nil {
		t.Error("a save went over what may be the only checkpoint")
	}
}

// A rank whose records are zeros makes no other rank give up its checkpoints.
func TestSetKeepsOtherRanks(t *testing.T) {
	for _, saves := range []uint64{1, 4} {
		var stores []*Memory
		var creators []func([]Array, Options) (*File, error)
		for range 2 {
			creators = append(creators, func(part []Array, o Options) (*File, error) {
				stores = append(stores, NewMemory(nil))
				return CreateOn(stores[len(stores)-1], part, o)
			})
		}
		s, err := createSet(creators, model(0), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for step := uint64(1); step <= saves; step++ {
			all, err := s.Begin(t.Context(), step)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range model(step) {
				if err := all.Write(a.Name, a.Data); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(all.Commit(state(step)), all.Wait(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		images := [][]byte{stores[0].Contents(), stores[1].Contents()}
		empty, err := CreateOn(NewMemory(nil), s.files[0].Arrays(), Options{Rank: s.files[0].head.rank, Ranks: 2, ID: s.files[0].head.id})
		if err != nil {
			t.Fatal(err)
		}
		zeroed := bytes.Clone(images[0])
		clear(zeroed[2*block : 5*block])
		for name, image := range map[string][]byte{"zeros": zeroed, "a new file": empty.storage.(*Memory).Contents()} {
			other := NewMemory(bytes.Clone(images[1]))
			var files []*File
			for _, m := range []*Memory{NewMemory(image), other} {
				f, err := OpenOn(m, nil, Options{})
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			set, err := newSet(files, model(0))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := set.Restore(model(0)); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s after %d saves: %v", name, saves, err)
			}
			if err := set.Close(); err != nil {
				t.Fatal(err)
			}
			if got := (layout{other.Contents()}); !got.committed(0) {
				t.Errorf("%s after %d saves: the other rank's checkpoints are gone", name, saves)
			}
		}
		empty.Close()
	}
}

func saveArrays(f *File, arrays []Array, s State) error {
	save, err := f.Begin(context.Background(), s.Step)
	if err != nil {
		return err
	}
	for _, a := range arrays {
		if err := save.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := save.Commit(s); err != nil {
		return err
	}
	return save.Wait(context.Background())
}
