package train_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"evenkeel/checkpoint"
	"evenkeel/internal/pytorch"
	"evenkeel/internal/slow"
	"evenkeel/train"
)

// What was trained and exported lies in PyTorch bit for bit, NaNs too.
func TestExportInTorch(t *testing.T) {
	slow.Skip(t)
	python := pytorch.Python(t)
	training, _ := digits(t)
	tr := trainer(t, must(train.Convnet(8, 8, 1, 10, 3, 4)), training, train.Config{MicroBatches: []int{7, 5}})
	run(t, tr, 3)
	half := checkpoint.Array{Name: "half", DType: checkpoint.BF16, Kind: checkpoint.Buffer, Shape: []int{2}, Data: []byte{0x80, 0x3f, 0xc1, 0x7f}}
	arrays := append(tr.Arrays(), half,
		checkpoint.Of("numbers", checkpoint.Buffer, []int64{-5, math.MaxInt64}),
		checkpoint.Of("nan", checkpoint.Buffer, []float32{math.Float32frombits(0x7fc12345), float32(math.Inf(-1)), math.SmallestNonzeroFloat32}))
	path := filepath.Join(t.TempDir(), "m.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := checkpoint.WriteSafetensors(f, arrays, checkpoint.State{Step: 3}); err != nil {
		t.Fatal(err)
	}
	types := map[checkpoint.DType]string{checkpoint.F32: "F32", checkpoint.BF16: "BF16", checkpoint.I64: "I64"}
	var want []string
	for _, a := range arrays {
		shape := strings.ReplaceAll(fmt.Sprint(a.Shape), " ", ", ")
		want = append(want, fmt.Sprintf("%s %s %s %x", a.Name, types[a.DType], shape, sha256.Sum256(a.Data)))
	}
	slices.Sort(want)
	out, err := exec.CommandContext(t.Context(), python, "../python/tests/read_safetensors.py", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("PyTorch has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
