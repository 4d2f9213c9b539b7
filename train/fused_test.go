package train

import (
	"evenkeel/internal/slow"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// The bits must not depend on the build: with GOAMD64=v3 the compiler fuses a product and a sum into one rounding
// unless the product is converted explicitly, as the language specification says.
func TestNothingIsFused(t *testing.T) {
	slow.Skip(t) // it compiles what the package imports once more
	build := exec.Command("go", "build", "-gcflags=-S", ".", "./layer", "../internal/matrix", "../internal/adam")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOAMD64=v3", "CGO_ENABLED=0")
	listing, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, listing)
	}
	if len(listing) < 100_000 {
		t.Fatalf("a listing of %d bytes is not the package's", len(listing))
	}
	fused := regexp.MustCompile(`\((\S+\.go:\d+)\)\s+(VFN?M\S+)`)
	seen := map[string]bool{}
	for _, m := range fused.FindAllStringSubmatch(string(listing), -1) {
		if line := m[1]; !seen[line] {
			seen[line] = true
			t.Errorf("%s: %s; convert the product: float32(a*b) + c", line, m[2])
		}
	}
}
