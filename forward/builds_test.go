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

	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// hashesVariable has a test binary print the hashes of trained weights: TestBuildsAgree builds itself for that.
const hashesVariable = "EVENKEEL_FORWARD_HASHES"

// Builds for the oldest amd64 processors and for new ones, which fuse a product and a sum where the source does not forbid
// it, train to the same bits: networks of dense layers, convolutions and attention, both kinds of directions, everything
// that decides about a step.
func TestBuildsAgree(t *testing.T) {
	if os.Getenv(hashesVariable) != "" {
		printHashes(t)
		return
	}
	switch {
	case testing.Short():
		t.Skip("compiles what the package imports twice more")
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
		run.Env = append(os.Environ(), hashesVariable+"=1")
		text, err := run.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", level, err, text)
		}
		hashes = append(hashes, string(text[:strings.LastIndex(string(text), "PASS")]))
	}
	if hashes[0] != hashes[1] || strings.Count(hashes[0], "\n") < 3 {
		t.Errorf("v1:\n%sv3:\n%s", hashes[0], hashes[1])
	}
}

func printHashes(t *testing.T) {
	training, _ := digits(t)
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
	transformer, err := train.Transformer(train.TransformerConfig{Tokens: len(text.Characters()), Length: 8, Size: 8, Heads: 2, Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, net := range []*train.Network{mlp, convnet, transformer} {
		c := testConfig(4, 2, 200)
		c.Momentum, c.Normalize, c.Clip, c.LearningRate = 0.7, i != 1, 50, 0.003
		set := training
		if net == transformer {
			set, c.Kind = text, Gaussian
		}
		for _, p := range runAll(t, c, net, NewMemory(), func(p *Processor) { p.Data = set })[:1] {
			fmt.Println(i, p.Weights.Hash())
		}
	}
}
