package forward

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
)

// Builds for the oldest amd64 processors and for new ones, which fuse a product and a sum where the source does not forbid
// it, train to the same bits.
func TestBuildsAgree(t *testing.T) {
	switch {
	case testing.Short():
		t.Skip("compiles what the package imports once more")
	case runtime.GOARCH != "amd64":
		t.Skip("builds differ in this way on amd64 alone")
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA || !cpu.X86.HasBMI2:
		t.Skip("this processor does not run a GOAMD64=v3 build")
	}
	var hashes []string
	// Without cgo the packages that need it compile sooner; no computation uses it. The first build finds nearly
	// all of its packages in the cache that the tests were built from.
	for _, env := range [][]string{{"GOAMD64=v1"}, {"GOAMD64=v3", "CGO_ENABLED=0"}} {
		binary := filepath.Join(t.TempDir(), env[0])
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary, "./internal/hashes")
		build.Env = append(os.Environ(), env...)
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		text, err := exec.Command(binary).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", env[0], err, text)
		}
		hashes = append(hashes, string(text))
	}
	if hashes[0] != hashes[1] || strings.Count(hashes[0], "\n") != 3 {
		t.Errorf("v1:\n%sv3:\n%s", hashes[0], hashes[1])
	}
}
