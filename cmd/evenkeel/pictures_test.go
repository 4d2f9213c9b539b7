package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"evenkeel/internal/race"
)

const pictures = "../../docs/images"

// The README's picture is what the first command draws.
func TestReadmePicture(t *testing.T) {
	if race.Enabled {
		t.Skip("a run of 200 rounds under four policies")
	}
	want, err := filepath.Abs(pictures)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	output(t, []string{"evenkeel", "run", "--plot", "run.svg"})
	samePicture(t, "run.svg", filepath.Join(want, "run.svg"))
}

// samePicture compares a picture to the one in the pages, byte by byte; -update replaces that.
func samePicture(t *testing.T, drawn, shown string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the pictures were drawn on amd64; other processors round otherwise")
	}
	got, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(shown, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(shown)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the command draws; run go test ./cmd/evenkeel -run 'Picture|PlanExportGuide' -update", shown)
	}
}
