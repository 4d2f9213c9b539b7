package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/runlog"
)

// clusters whose global batch is between a part of what memory holds and many times it.
var exported = map[string]string{
	"one step": "workload: llama-3b-512-fp16\nglobal_batch: 96\nnodes:\n  - {device: a100-40g, count: 2}\n  - {device: a10g, count: 6}\n  - {device: t4, count: 4}\n",
	"steps":    "workload: llama-7b-512-fp16\nglobal_batch: 2000\nnodes:\n  - {device: a100-40g, count: 2, micro_batch: 8}\n  - {device: a10g, count: 6, micro_batch: 4}\n  - {device: t4, count: 4, micro_batch: 2}\n",
	"links":    "workload: llama-3b-512-fp16\nglobal_batch: 700\nnodes:\n  - {device: a100-40g, link: 10Gbps, micro_batch: 16}\n  - {device: a10g, count: 3, link: 40Gbps, micro_batch: {least: 2, most: 6}}\n  - {device: a6000, count: 3, micro_batch: [1, 2, 4]}\n  - {device: t4, link: 10Mbps}\n",
}

// The sizes in the file take a round at most 1.01 times the shortest that any sizes take, on
// nodes that do what their profile says: those by the profiles, and those by the log of a
// calm run. The simulator says what a round takes.
func TestExportedSizesAreNearlyOptimal(t *testing.T) {
	for name, text := range exported {
		t.Run(name, func(t *testing.T) {
			_, c, err := clusterfile.Read(strings.NewReader(text), "c.yaml", profile.Embedded())
			if err != nil {
				t.Fatal(err)
			}
			best := shortest(c)
			ends := map[string]export.Run{"profiles": {Cluster: c, GlobalBatch: c.GlobalBatch, Performance: c.Nominal()}}
			a := cli.NewApp(t.Context(), devNull(t), devNull(t))
			if ends["log"], err = readLog(a, calmLog(t, text, c), nil); err != nil {
				t.Fatal(err)
			}
			for from, end := range ends {
				written, err := export.FromRun(end, "")
				if err != nil {
					t.Fatal(err)
				}
				var file bytes.Buffer
				if err := export.Write(&file, "json", written); err != nil {
					t.Fatal(err)
				}
				sizes, err := export.Read(&file)
				if err != nil {
					t.Fatal(err)
				}
				shares := make([]int, len(sizes.Nodes))
				for i, n := range sizes.Nodes {
					shares[i] = n.Share
				}
				r, err := sim.New(c, cluster.Conditions{}, 1).Round(t.Context(), cluster.Plan{Sizes: shares})
				if err != nil {
					t.Fatal(err)
				}
				ratio := r.Wait.Seconds() / best
				t.Logf("by %s: %.4f s, %.5f of the shortest", from, r.Wait.Seconds(), ratio)
				if r.Accepted != c.GlobalBatch || !(ratio <= 1.01) || ratio < 1-1e-9 {
					t.Errorf("by %s: %d samples in %v s, %.4f of the shortest, %v", from, r.Accepted, r.Wait.Seconds(), ratio, best)
				}
			}
		})
	}
}

// shortest is a bound below the round time of any sizes: the earliest moment by which all
// nodes together can have done the global batch. It is found by trying every share of every
// node, micro-step by micro-step.
func shortest(c *cluster.Cluster) float64 {
	took := make([][]float64, len(c.Nodes)) // of every share that a node takes
	size := make([][]int, len(c.Nodes))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		taken := []int{}
		for b := 1; b <= min(n.Limit, c.GlobalBatch); b++ {
			listed := len(n.Shapes) == 0 && b >= n.Least
			for _, s := range n.Shapes {
				listed = listed || s == b
			}
			if listed {
				taken = append(taken, b)
			}
		}
		full := taken[len(taken)-1]
		for whole, seconds := 0, n.Network; whole <= c.GlobalBatch; whole, seconds = whole+full, seconds+n.Profile.Seconds(float64(full)) {
			for _, b := range taken {
				took[i] = append(took[i], seconds+n.Profile.Seconds(float64(b)))
				size[i] = append(size[i], whole+b)
			}
		}
	}
	low, high := 0.0, 1e6
	for range 80 {
		mid, sum := (low+high)/2, 0
		for i := range took {
			most := 0
			for k, t := range took[i] {
				if t <= mid {
					most = max(most, size[i][k])
				}
			}
			sum += most
		}
		if sum >= c.GlobalBatch {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// calmLog is the log of a run in which every node does what its profile says.
func calmLog(t *testing.T, text string, c *cluster.Cluster) string {
	t.Helper()
	s := freeBatch(t)
	s.name, s.text, s.cluster, s.rounds = "calm", text, c, 40
	s.conditions.Conditions = cluster.Conditions{}
	path := filepath.Join(t.TempDir(), "calm.jsonl")
	log, err := runlog.Create(path, s.header("test"))
	if err != nil {
		t.Fatal(err)
	}
	policy, _, control := s.start()
	for range s.rounds {
		round, err := control.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Round(round.Plan, policy.Performance(), round.Report, runlog.Note{Weights: &s.weights}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
