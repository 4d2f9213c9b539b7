package forward

import (
	"bytes"
	"errors"
	"testing"
)

func TestSavedWeights(t *testing.T) {
	net := network3(t)
	w := NewWeights(net, 1)
	initial := w.Hash()
	w.add(Rademacher, 1, []term{{step: 3, plus: 1000}})
	var b bytes.Buffer
	if err := WriteWeights(&b, initial, 77, w); err != nil {
		t.Fatal(err)
	}
	got := NewWeights(net, 1)
	if steps, err := ReadWeights(bytes.NewReader(b.Bytes()), initial, got); err != nil || steps != 77 || got.Hash() != w.Hash() {
		t.Errorf("%d steps, %v", steps, err)
	}
	for i := range b.Len() {
		bad := bytes.Clone(b.Bytes())
		bad[i] ^= 4
		if _, err := ReadWeights(bytes.NewReader(bad), initial, got); !errors.Is(err, ErrSavedWeights) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		if _, err := ReadWeights(bytes.NewReader(bad[:i]), initial, got); !errors.Is(err, ErrSavedWeights) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
	if _, err := ReadWeights(&b, NewWeights(net, 2).Hash(), got); !errors.Is(err, ErrSavedWeights) {
		t.Errorf("of another run: %v", err)
	}
}

func FuzzReadWeights(f *testing.F) {
	net := network3(f)
	w := NewWeights(net, 1)
	initial := w.Hash()
	var b bytes.Buffer
	if err := WriteWeights(&b, initial, 7, w); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(weightsMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ReadWeights(bytes.NewReader(b), initial, w); err != nil && !errors.Is(err, ErrSavedWeights) {
			t.Fatal(err)
		}
	})
}
