package checkpoint

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file was written by python/evenkeel/checkpoint.py: it keeps the format, and the two implementations, where they
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
