package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A bootstrap interval holds the truth about as often as it says.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for name, statistic := range map[string]func([][]float64) Interval{"mean": Bootstrap, "interquartile mean": IQM} {
		held := 0
		const trials = 200
		for range trials {
			strata := make([][]float64, 3)
			for k := range strata {
				for range 20 {
					strata[k] = append(strata[k], 5+rng.NormFloat64())
				}
			}
			i := statistic(strata)
			if i.Low > i.Mean || i.Mean > i.High {
				t.Fatalf("%s: %+v", name, i)
			}
			if i.Low <= 5 && 5 <= i.High {
				held++
			}
		}
		// 95% of 200 is 190, with a standard deviation of 3.1.
		if held < 176 {
			t.Errorf("%s: %d of %d intervals hold the truth", name, held, trials)
		}
	}
}

func TestIQM(t *testing.T) {
	for _, x := range []struct {
		strata [][]float64
		want   float64
	}{
		{[][]float64{{1, 2, 3, 4}}, 2.5},
		{[][]float64{{-1000, 2}, {1000, 4}}, 3},
		{[][]float64{{0, 1, 2, 3, 4, 5}}, (0.5*1 + 2 + 3 + 0.5*4) / 3},
		{[][]float64{{7}}, 7},
	} {
		if got := IQM(x.strata).Mean; math.Abs(got-x.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", x.strata, got, x.want)
		}
	}
}

func TestProfile(t *testing.T) {
	p := Profile([][]float64{{0.1, 0.2}, {0.3, 0.4}}, []float64{0, 0.2, 0.25, 0.5})
	for i, want := range []float64{1, 0.75, 0.5, 0} {
		if p[i].Mean != want || p[i].Low > want || p[i].High < want {
			t.Errorf("threshold %d: %+v, want %v", i, p[i], want)
		}
	}
}

func TestSeeds(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5}
	i := Seeds(len(values), func(pick []int) float64 {
		sum := 0.0
		for _, k := range pick {
			sum += values[k]
		}
		return sum / float64(len(pick))
	})
	if i.Mean != 3 || !(i.Low < 2.5 && i.Low > 1 && i.High > 3.5 && i.High < 5) {
		t.Errorf("%+v", i)
	}
}

func drawPoints(t *rapid.T, objectives int) [][]float64 {
	var points [][]float64
	for range rapid.IntRange(0, 7).Draw(t, "points") {
		p := make([]float64, objectives)
		for o := range p {
			p[o] = float64(rapid.IntRange(-1, 6).Draw(t, "value"))
		}
		points = append(points, p)
	}
	return points
}

// On whole numbers the hypervolume is the number of unit cells that some point covers.
func TestHypervolume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objectives := rapid.IntRange(1, 4).Draw(t, "objectives")
		points := drawPoints(t, objectives)
		cells, cell := 0, make([]int, objectives)
		var count func(o int)
		count = func(o int) {
			if o == objectives {
				for _, p := range points {
					inside := true
					for k, c := range cell {
						inside = inside && p[k] >= float64(c+1)
					}
					if inside {
						cells++
						return
					}
				}
				return
			}
			for cell[o] = range 6 {
				count(o + 1)
			}
		}
		count(0)
		if got := Hypervolume(points, make([]float64, objectives)); math.Abs(got-float64(cells)) > 1e-9 {
			t.Fatalf("%v: %v, counted %d", points, got, cells)
		}
		// What is dominated adds nothing.
		var front [][]float64
		for _, i := range pareto(points) {
			front = append(front, points[i])
		}
		if got := Hypervolume(front, make([]float64, objectives)); math.Abs(got-float64(cells)) > 1e-9 {
			t.Fatalf("%v: the front alone has %v of %d", points, got, cells)
		}
	})
}

// pareto returns the indices of the points that no other dominates: none is as good in
// every objective and better in one. All objectives are to be large. Of equal points the
// first is kept.
func pareto(points [][]float64) []int {
	var front []int
next:
	for i, p := range points {
		for j, q := range points {
			if dominates(q, p) && (j < i || !slices.Equal(p, q)) {
				continue next
			}
		}
		front = append(front, i)
	}
	return front
}

// dominates says whether p is at least as good as q in every objective.
func dominates(p, q []float64) bool {
	for o := range p {
		if p[o] < q[o] {
			return false
		}
	}
	return true
}
