package forward

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"evenkeel/internal/slow"
	"evenkeel/train"
	"evenkeel/train/data"
)

// printHashes is the environment variable with which TestBuildsAgree runs its own builds: they print hashes and compare nothing.
const printHashes = "EVENKEEL_PRINT_HASHES"

// TestBuildsAgree builds this test for the oldest amd64 processors and for new ones, which may fuse a product and a sum where the source does not
// forbid it. Both builds must train dense layers, convolutions and attention to the same bits.
func TestBuildsAgree(t *testing.T) {
	if os.Getenv(printHashes) != "" {
		for _, line := range trainedHashes(t) {
			fmt.Println(line)
		}
		return
	}
	slow.Skip(t)
	switch {
	case runtime.GOARCH != "amd64":
		t.Skip("builds differ in this way on amd64 alone")
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA || !cpu.X86.HasBMI2:
		t.Skip("this processor does not run a GOAMD64=v3 build")
	}
	var hashes []string
	for _, level := range []string{"v1", "v3"} {
		binary := filepath.Join(t.TempDir(), level)
		build := exec.Command("go", "test", "-c", "-o", binary, ".")
		build.Env = append(os.Environ(), "GOAMD64="+level, "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		run := exec.Command(binary, "-test.run", "^TestBuildsAgree$")
		run.Env = append(os.Environ(), printHashes+"=1")
		text, err := run.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", level, err, text)
		}
		trained, _, _ := strings.Cut(string(text), "PASS") // the time that the test took comes after it
		hashes = append(hashes, trained)
	}
	if hashes[0] != hashes[1] || strings.Count(hashes[0], "\n") != 3 {
		t.Errorf("v1:\n%sv3:\n%s", hashes[0], hashes[1])
	}
}

// trainedHashes trains three networks and returns a line with the hash of each one's weights.
func trainedHashes(t *testing.T) (lines []string) {
	t.Helper()
	digits, err := data.Digits()
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.NewText(strings.NewReader(strings.Repeat("the quick brown fox jumps over the lazy dog; ", 20)), "text", 8)
	if err != nil {
		t.Fatal(err)
	}
	mlp, err := train.MLP(64, 16, 10)
	if err != nil {
		t.Fatal(err)
	}
	convnet, err := train.Convnet(8, 8, 1, 10, 4)
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, tokens := text.Shape()
	transformer, err := train.Transformer(train.TransformerConfig{Tokens: tokens, Length: 8, Size: 8, Heads: 2, Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	pairs := Config{Processors: 4, Estimator: Paired, Directions: 2, Key: 11, Steps: 200, Epsilon: 1e-3, LearningRate: 0.003, Schedule: "cosine", Examples: []int{3, 4}, Clip: 2.5, Guard: true}
	each := pairs
	each.Estimator, each.Directions, each.Examples = Each, 4, []int{4, 4}
	for _, run := range []struct {
		name   string
		config Config
		net    *train.Network
		set    data.Set
	}{{"dense", pairs, mlp, digits}, {"convolution", each, convnet, digits}, {"attention", each, transformer, text}} {
		all := runAllOn(t, &run.config, run.net, run.set, NewMemory(), nil)
		lines = append(lines, run.name+" "+all[0].Weights.Hash())
	}
	return lines
}
