package export

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

// A trainer has all nodes, also where the agent chose for those present.
func TestFromRun(t *testing.T) {
	const file = "workload: llama-3b-512-fp16\nglobal_batch: 8\nnodes: [{device: a100-40g, count: 2}, {device: t4, count: 2}]"
	_, c, err := clusterfile.Read(strings.NewReader(file), "free.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c.Choices.LeastBatch, c.Choices.MostBatch = 4, 128
	end := Run{Cluster: c, GlobalBatch: 50, NoiseScale: 100, Sizes: []int{40, 0, 5, 5}, Performance: c.Nominal()}
	got, err := FromRun(end, "")
	if err != nil || got.GlobalBatch != 50 || len(got.Ranks()) != 4 || got.LearningRateFactor != math.Sqrt(50.0/8) {
		t.Errorf("%v: %+v", err, got)
	}
	sizes := []int{20, 20, 5, 5}
	end.Sizes = sizes
	if got, err = FromRun(end, ""); err != nil || got.Nodes[0].Share != 20 {
		t.Errorf("%v: sizes that all nodes had are not kept: %+v", err, got)
	}
	c.Choices = cluster.Choices{}
	end.GlobalBatch = c.GlobalBatch
	if got, err = FromRun(end, ""); err != nil || got.ReferenceBatch != 0 || got.GlobalBatch != 8 {
		t.Errorf("%v: a factor for a fixed batch: %+v", err, got)
	}
}

// A batch that was chosen is read off the sizes, within the bounds.
func TestChosenBatch(t *testing.T) {
	c := &cluster.Cluster{Nodes: make([]cluster.Node, 4), Choices: cluster.Choices{LeastBatch: 2, MostBatch: 128}}
	for _, x := range []struct {
		sizes []int
		want  int
	}{{[]int{1, 0, 0, 0}, 4}, {[]int{20, 5, 0, 7}, 32}, {[]int{200, 0, 0, 0}, 128}} {
		if got := ChosenBatch(c, x.sizes); got != x.want {
			t.Errorf("%v: %d, want %d", x.sizes, got, x.want)
		}
	}
	c.Choices.LeastBatch = 10
	if got := ChosenBatch(c, []int{1, 1, 0, 0}); got != 10 {
		t.Errorf("at least 10: %d", got)
	}
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sizes.json")
	for range 2 { // the second replaces the first
		if err := Save(path, "json", example()); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := Read(f); err != nil || !cmp.Equal(s, example(), noLimit) {
		t.Error(s, err)
	}
}
