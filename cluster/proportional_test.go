package cluster

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/profile"
)

// TestProportional checks the definition: with one common level, node i is due
// level*weight, clipped to 1..global batch. It gets that rounded down or up, rounded up those
// with the largest remainders.
func TestProportional(t *testing.T) {
	var a Allocator
	rapid.Check(t, func(t *rapid.T) {
		in := drawInstance(t, 12, 300)
		n, batch := len(in.perf), in.cluster.GlobalBatch
		weight, sizes := make([]float64, n), make([]int, n)
		for i := range weight {
			in.cluster.Nodes[i].Least, in.cluster.Nodes[i].Shapes = 0, nil
			weight[i] = float64(rapid.IntRange(1, 20).Draw(t, "weight"))
		}
		if err := a.Proportional(in.cluster, in.present, weight, sizes); errors.Is(err, ErrCapacity) {
			if _, err := a.Allocate(in.cluster, in.present, in.perf, sizes); !errors.Is(err, ErrCapacity) {
				t.Fatal("Allocate finds room")
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
		in.check(t, sizes)

		due := plainDue(&in, weight)
		least, most := 1.0, 0.0 // remainders: least rounded up, most rounded down
		for i, b := range sizes {
			if !in.there(i) {
				continue
			}
			over := float64(b) - due[i]
			if math.Abs(over) > 1+1e-6 {
				t.Fatalf("node %d got %d, due %v (batch %d)", i, b, due[i], batch)
			}
			switch remainder := due[i] - math.Floor(due[i]+1e-6); {
			case over > 1e-6:
				least = min(least, remainder)
			case over < -1e-6:
				most = max(most, remainder)
			}
		}
		if most > least+1e-6 {
			t.Fatalf("%v, due %v: remainder %v was rounded up, %v down", sizes, due, least, most)
		}
	})
}

// plainDue finds the level by going through every point where a node meets a bound.
func plainDue(in *instance, weight []float64) []float64 {
	least, batch := 1.0, float64(in.cluster.GlobalBatch)
	there := 0
	for i := range weight {
		if in.there(i) {
			there++
		}
	}
	if there > in.cluster.GlobalBatch {
		least = 0
	}
	clipped := func(level float64) ([]float64, float64) {
		due, sum := make([]float64, len(weight)), 0.0
		for i, w := range weight {
			if in.there(i) {
				due[i] = min(max(level*w, least), batch)
				sum += due[i]
			}
		}
		return due, sum
	}
	bends := []float64{0}
	for _, w := range weight {
		bends = append(bends, least/w, batch/w)
	}
	slices.Sort(bends)
	for k := 1; k < len(bends); k++ {
		_, below := clipped(bends[k-1])
		due, above := clipped(bends[k])
		if above < batch {
			continue
		}
		if above > below { // linear in between
			due, _ = clipped(bends[k-1] + (bends[k]-bends[k-1])*(batch-below)/(above-below))
		}
		return due
	}
	due, _ := clipped(bends[len(bends)-1])
	return due
}

func TestProportionalCases(t *testing.T) {
	var a Allocator
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name   string
		batch  int
		limits []int
		weight []float64
		want   []int
	}{
		{"equal", 10, []int{99, 99, 99}, nil, []int{4, 3, 3}},
		{"two", 3, []int{99, 99}, []float64{1, 1}, []int{2, 1}},
		{"exact thirds", 9, []int{99, 99}, []float64{1, 2}, []int{3, 6}},
		{"a share of two micro-steps", 10, []int{2, 99, 99}, nil, []int{4, 3, 3}},
		{"nothing wanted of one", 10, []int{99, 99}, []float64{0, 1}, []int{1, 9}},
		{"nothing wanted of anyone", 10, []int{99, 99}, []float64{0, 0}, []int{5, 5}},
		{"the unwanted take the rest", 40_000, []int{99_999, 99_999, 2}, []float64{0, -1, 5}, []int{3616, 3616, 32_768}},
		{"no numbers", 10, []int{99, 99, 99}, []float64{nan, inf, 1}, []int{1, 1, 8}},
		{"a huge batch, all of it unwanted", MaxGlobalBatch, []int{profile.NoLimit, profile.NoLimit, 1}, []float64{0, 0, 1}, []int{536_862_720, 536_862_720, MaxMicroSteps}},
		{"the largest numbers", 9, []int{99, 99}, []float64{math.MaxFloat64, math.MaxFloat64 / 2}, []int{6, 3}},
		{"far apart", 1000, []int{999, 999}, []float64{1e-300, 1e300}, []int{1, 999}},
	} {
		d := &Cluster{GlobalBatch: c.batch}
		for _, l := range c.limits {
			d.Nodes = append(d.Nodes, Node{Limit: l})
		}
		sizes := make([]int, len(c.limits))
		if err := a.Proportional(d, nil, c.weight, sizes); err != nil || !slices.Equal(sizes, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, sizes, err, c.want)
		}
	}
}
