package checkpoint

import (
	"bytes"
	"errors"
	"testing"
)

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
