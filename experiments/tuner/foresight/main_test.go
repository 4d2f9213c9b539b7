package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// The page shows what the command draws, and there the node's spells cost less with foresight.
func TestPicture(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the picture was drawn on amd64; other processors round otherwise")
	}
	f, err := draw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slowest := func(panel, series int) (most float64) {
		for _, y := range f.Panels[panel].Series[series].Y {
			most = max(most, y)
		}
		return most
	}
	if slowest(2, 0) > 0.7*slowest(2, 1) {
		t.Errorf("the longest round takes %v s with foresight, %v without", slowest(2, 0), slowest(2, 1))
	}
	drawn := filepath.Join(t.TempDir(), "foresight.svg")
	if err := f.Save(drawn); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(drawn)
	want, err := os.ReadFile("../../../docs/images/foresight.svg")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/images/foresight.svg is not what go run ./experiments/tuner/foresight draws (%v)", err)
	}
}
