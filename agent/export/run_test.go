package export

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/internal/slow"
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

// Micro-steps are no larger than their number needs, unless the node takes certain sizes only.
func TestEvenMicroSteps(t *testing.T) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 14, Nodes: []cluster.Node{{Name: "a", Device: "d", Limit: 6}, {Name: "b", Device: "d", Limit: 6, Shapes: []int{1, 6}}}}
	r := Run{Cluster: c, GlobalBatch: 14, Sizes: []int{7, 7}, Performance: c.Nominal()}
	s, err := FromRun(r, "")
	if err != nil || s.Validate() != nil {
		t.Fatal(err, s.Validate())
	}
	if a, b := s.Nodes[0], s.Nodes[1]; a.MicroBatch != 4 || a.MicroSteps != 2 || b.MicroBatch != 6 || b.MicroSteps != 2 {
		t.Errorf("%+v, %+v", a, b)
	}
	write(t, "torchrun", s)
	if err := Write(&bytes.Buffer{}, "deepspeed", Sizes{Version: version, Workload: "w", GlobalBatch: 4, Nodes: []Node{
		{Name: "a", Device: "d", MicroBatch: 1, MicroSteps: 3, Share: 3, GradientWeight: 1.5}, {Name: "b", Device: "d", MicroBatch: 1, MicroSteps: 1, Share: 1, GradientWeight: 0.5},
	}}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "3 and 1") {
		t.Errorf("unequal micro-steps for DeepSpeed: %v", err)
	}
}

// Random clusters get the same number of micro-steps on all ranks, with a sample at least in each, files that hold it, and no
// later finish than any other equal steps have.
func TestEqualSteps(t *testing.T) {
	form, err := Find("deepspeed")
	if err != nil {
		t.Fatal(err)
	}
	random, clusters := rand.New(rand.NewPCG(3, 4)), 30
	if slow.Enabled() {
		clusters = 1000
	}
	for range clusters {
		c := &cluster.Cluster{Workload: "w", GlobalBatch: 1 + random.IntN(40), Collect: cluster.Collect{AutoDeadline: true}}
		r := Run{Cluster: c, GlobalBatch: c.GlobalBatch, Equal: form.Equal}
		for i := range 1 + random.IntN(6) {
			n := cluster.Node{Name: fmt.Sprint(i), Device: "d", Limit: 1 + random.IntN(40), Least: 1, Network: random.Float64()}
			points := []profile.Point{{MicroBatch: 1, Seconds: 0.1 + random.Float64()}}
			for b := 1 + random.IntN(3); b < 12; b += 1 + random.IntN(5) {
				last := points[len(points)-1]
				points = append(points, profile.Point{MicroBatch: last.MicroBatch + b, Seconds: last.Seconds + random.Float64()})
			}
			if n.Profile, err = profile.New("d", "w", points, ""); err != nil {
				t.Fatal(err)
			}
			switch random.IntN(4) {
			case 0:
				n.Shapes, n.Limit = []int{1, 2, 5, 11}, 40
			case 1:
				n.Least = min(2, n.Limit)
			}
			c.Nodes = append(c.Nodes, n)
		}
		r.Performance = c.Nominal()
		r.Sizes = slices.Repeat([]int{1}, len(c.Nodes)) // of a run without equal steps
		r.Sizes[0] += c.GlobalBatch - len(c.Nodes)
		best := bestEqual(c)
		s, err := FromRun(r, "")
		if c.EqualSteps() != 0 {
			t.Fatal("the run's cluster was changed")
		}
		if errors.Is(err, cluster.ErrCapacity) && math.IsInf(best, 1) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		read, err := Read(bytes.NewReader(write(t, "json", s)))
		if err != nil || s.Deadline != nil || !cmp.Equal(s, read, noLimit) || s.EqualSteps < 1 {
			t.Fatal(err, s.Deadline, cmp.Diff(s, read, noLimit))
		}
		for i, n := range s.Nodes {
			if n.Share > 0 && (n.MicroSteps != s.EqualSteps || n.Share < n.MicroSteps || n.MicroBatch > c.Nodes[i].Limit) {
				t.Fatalf("%d steps: %+v", s.EqualSteps, n)
			}
			for k := range n.MicroSteps { // as the script cuts the share
				if part := n.Share*(k+1)/n.MicroSteps - n.Share*k/n.MicroSteps; c.Nodes[i].Shapes != nil && !slices.Contains(c.Nodes[i].Shapes, part) {
					t.Fatalf("%+v: %d samples, and it takes %v", n, part, c.Nodes[i].Shapes)
				}
			}
		}
		if err := Write(&bytes.Buffer{}, "deepspeed", s); err != nil {
			t.Fatal(err)
		}
		last := 0.0
		for i, n := range s.Nodes {
			last = max(last, equalFinish(&c.Nodes[i], n.Share, s.EqualSteps))
		}
		if !(last <= best*(1+1e-9)) {
			t.Fatalf("%d steps take %v, possible is %v: %+v", s.EqualSteps, last, best, s.Nodes)
		}
		s.EqualSteps++
		if s.Validate() == nil {
			t.Fatal("another number of steps is taken")
		}
	}
}

// equalFinish is when a node has done a share in k micro-steps that rounding cuts it into; infinite if it does not take one.
func equalFinish(n *cluster.Node, share, k int) float64 {
	if share == 0 {
		return 0
	}
	seconds := n.Network
	for j := range k {
		part := share*(j+1)/k - share*j/k
		if part < n.Least || part > n.Limit || n.Shapes != nil && !slices.Contains(n.Shapes, part) {
			return math.Inf(1)
		}
		seconds += n.Profile.Seconds(float64(part))
	}
	return seconds
}

// bestEqual tries every number of steps and, for each, every time at which a node can be done: which sums of shares are done?
func bestEqual(c *cluster.Cluster) float64 {
	best := math.Inf(1)
	for k := 1; k <= c.GlobalBatch; k++ {
		at, times := make([][]float64, len(c.Nodes)), []float64(nil)
		for i := range c.Nodes {
			for b := range c.GlobalBatch + 1 {
				at[i] = append(at[i], equalFinish(&c.Nodes[i], b, k))
			}
			times = append(times, at[i]...)
		}
		slices.Sort(times)
		first := sort.Search(len(times), func(j int) bool {
			sums := map[int]bool{0: true}
			for i := range at {
				more := map[int]bool{}
				for sum := range sums {
					for b := 0; sum+b <= c.GlobalBatch; b++ {
						if at[i][b] <= times[j] {
							more[sum+b] = true
						}
					}
				}
				sums = more
			}
			return sums[c.GlobalBatch]
		})
		best = min(best, times[first])
	}
	return best
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
