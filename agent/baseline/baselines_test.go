package baseline

import (
	"math"
	"slices"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/internal/agenttest"
)

// decide asks p after a round in which the nodes took so many seconds for their sizes
// (none: before the first round) and compares its sizes with those worked out by hand.
func decide(t *testing.T, p agent.Policy, sizes []int, want []int, seconds ...float64) {
	t.Helper()
	var report *cluster.Report
	if seconds != nil {
		report = agenttest.Measured(sizes, seconds...)
	}
	if err := p.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sizes, want) {
		t.Fatalf("after %v seconds: sizes %v, want %v", seconds, sizes, want)
	}
}

func TestUniformByHand(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	decide(t, NewUniform(c), make([]int, 3), []int{10, 10, 10})
}

func TestProportionalByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewProportional(c, 1, 0)
	decide(t, p, sizes, []int{10, 10, 10})
	// mean 2: c = 10*2/1, 10*2/2, 10*2/3 = 20, 10, 6.67; of 30: 16.4, 8.2, 5.5
	decide(t, p, sizes, []int{16, 8, 6}, 1, 2, 3)
	// mean 1.8: 16*1.8/2, 8*1.8/1, 6*1.8/2.4 = 14.4, 14.4, 4.5; of 30: 12.97, 12.97, 4.05
	decide(t, p, sizes, []int{13, 13, 4}, 2, 1, 2.4)
}

func TestProportionalDeadBandByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewProportional(c, 1, 0.2)
	decide(t, p, sizes, []int{10, 10, 10})
	// mean 1.22: c = 12.2, 9.4, 9.0, so |c-b|/c = 0.18, 0.07, 0.11: all kept
	decide(t, p, sizes, []int{10, 10, 10}, 1, 1.3, 1.36)
	// mean 1.5: c = 15, 15, 7.5; |c-b|/c = 0.33, 0.33, 0.33: all change
	decide(t, p, sizes, []int{12, 12, 6}, 1, 1, 2)
	q := NewProportional(c, 1, 0.12)
	decide(t, q, sizes, []int{10, 10, 10})
	// mean 1.133: c = 11.3, 10.3, 8.7; |c-b|/c = 0.118, 0.03, 0.147: 10, 10, 8.7; of 30: 10.4, 10.4, 9.1
	decide(t, q, sizes, []int{11, 10, 9}, 1, 1.1, 1.3)
}

func TestProportionalPeriodByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewProportional(c, 3, 0)
	decide(t, p, sizes, []int{10, 10, 10})
	decide(t, p, sizes, []int{10, 10, 10}, 1, 2, 2)
	decide(t, p, sizes, []int{10, 10, 10}, 1, 1, 4)
	// means over three rounds 1, 2, 3: as in the first trace
	decide(t, p, sizes, []int{16, 8, 6}, 1, 3, 3)
}

// A node that was not measured keeps its share instead of starting from nothing.
func TestProportionalKeepsTheUnmeasured(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewProportional(c, 1, 0)
	decide(t, p, sizes, []int{10, 10, 10})
	decide(t, p, sizes, []int{10, 10, 10}, 2, 2, 0)
}

func TestLBBSPByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewLBBSP(c, 0.5)
	decide(t, p, sizes, []int{10, 10, 10})
	// speeds 10, 5, 3.33 of 18.33: 16.4, 8.2, 5.5
	decide(t, p, sizes, []int{16, 8, 6}, 1, 2, 3)
	// newest 10, 5, 6; averages 10, 5, 4.67 of 19.67: 15.3, 7.6, 7.1
	decide(t, p, sizes, []int{15, 8, 7}, 1.6, 1.6, 1)
}

// A node that has not been measured counts as the mean, and its first measurement as
// the whole of its average.
func TestLBBSPFirstMeasurement(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewLBBSP(c, 0.1)
	decide(t, p, sizes, []int{10, 10, 10})
	decide(t, p, sizes, []int{10, 10, 10}, 1, 1, 0)
	decide(t, p, sizes, []int{12, 12, 6}, 1, 1, 2)
}

func TestWaterFillByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1, 0.1), make([]int, 3)
	p := NewWaterFill(c, WaterFill{Gain: 1})
	decide(t, p, sizes, []int{10, 10, 10})
	// Slowdowns 1, 2, 4 of 0.5 + b/10. Equal times T: b = 10T/s - 5, summing to 30 at T = 2.57:
	// 20.7, 7.9, 1.4. The last two samples finish first on nodes 0 and 1, both at 2.6.
	decide(t, p, sizes, []int{21, 8, 1}, 1.5, 3, 6)
	// The same speeds measured at other sizes change nothing.
	decide(t, p, sizes, []int{21, 8, 1}, 2.6, 2.6, 2.4)
}

func TestWaterFillGainByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 20, 0.1, 0.1), make([]int, 2)
	p := NewWaterFill(c, WaterFill{Gain: 0.25}).(*waterFill)
	decide(t, p, sizes, []int{10, 10})
	decide(t, p, sizes, []int{10, 10}, 1.5, 1.5)
	// Slowdown 1 + 0.25*(2-1); 1.25*(0.5+b/10) = 0.5 + (20-b)/10 at b = 8.3
	decide(t, p, sizes, []int{8, 12}, 3, 1.5)
	if got := p.nodes[0].slowdown; math.Abs(got-1.25) > 1e-12 {
		t.Errorf("slowdown %v", got)
	}
}

func TestMarginByHand(t *testing.T) {
	c, sizes := agenttest.Lines(t, 20, 0.1, 0.1), make([]int, 2)
	p := NewWaterFill(c, WaterFill{Gain: 0.5, Margin: 2}).(*waterFill)
	for _, slowdown := range []float64{1, 1.1, 1} {
		if err := p.Decide(agenttest.Measured([]int{10, 10}, 1.5*slowdown, 1.5), nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}
	// Residuals 0.1 and 1/1.05-1. Variance 0.1^2/2 = 0.005, then 2/3 of it and a third of
	// 0.0476^2: 0.0040892. Slowdown 1, 1.05, 1.025.
	if got := p.nodes[0].variance; math.Abs(got-0.0040892) > 1e-7 {
		t.Errorf("variance %v", got)
	}
	if got, want := p.perf[0].PerSample, 0.1*1.025*(1+2*0.063947); math.Abs(got-want) > 1e-6 {
		t.Errorf("seconds per sample %v, want %v", got, want)
	}
	if !(sizes[0] < sizes[1]) {
		t.Errorf("sizes %v: the noisy node deserves less", sizes)
	}
}

func TestCUSUMJumps(t *testing.T) {
	c := agenttest.Lines(t, 20, 0.1, 0.1)
	slow := func(cusum float64) []float64 {
		p, sizes := NewWaterFill(c, WaterFill{Gain: 0.02, CUSUM: cusum}).(*waterFill), make([]int, 2)
		var beliefs []float64
		for round := range 120 {
			f := 1 + 0.01*math.Pow(-1, float64(round)) // noise of 1% around 1, then around 2, then 1
			if round >= 50 && round < 90 {
				f *= 2
			}
			if err := p.Decide(agenttest.Measured([]int{10, 10}, 1.5*f, 1.5), nil, &cluster.Plan{Sizes: sizes}); err != nil {
				t.Fatal(err)
			}
			beliefs = append(beliefs, p.nodes[0].slowdown)
		}
		return beliefs
	}
	with, without := slow(4), slow(0)
	if math.Abs(with[49]-1) > 0.01 || with[49] != without[49] {
		t.Errorf("steady: %v, without detection %v", with[49], without[49])
	}
	if math.Abs(with[50]-2.02) > 1e-9 || without[50] > 1.05 {
		t.Errorf("one round after the change: %v, without detection %v", with[50], without[50])
	}
	if with[91] > 1.05 || without[91] < 1.3 {
		t.Errorf("two rounds after the end: %v, without detection %v", with[91], without[91])
	}
}

func TestLeastSquaresFindsTheLine(t *testing.T) {
	c, sizes := agenttest.Lines(t, 30, 0.1, 0.1), make([]int, 2)
	c.Nodes[0].Profile, c.Nodes[0].Hidden.Profile = nil, c.Nodes[0].Profile
	p := NewWaterFill(c, WaterFill{Gain: 1}).(*waterFill)
	for _, b := range []int{10, 20} {
		if err := p.Decide(agenttest.Measured([]int{b, b}, 0.7+0.2*float64(b), 1), nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.perf[0]; math.Abs(got.Overhead-0.7) > 1e-9 || math.Abs(got.PerSample-0.2) > 1e-9 {
		t.Errorf("fitted %+v, want 0.7 + 0.2 b", got)
	}
}

func TestWaterFillBelievesALateNodesBound(t *testing.T) {
	c, sizes := agenttest.Lines(t, 20, 0.1, 0.1), []int{10, 10}
	p := NewWaterFill(c, WaterFill{Gain: 0.1}).(*waterFill)
	for _, x := range []struct{ seconds, want float64 }{{1, 1}, {3, 2}, {2, 2}} {
		report := agenttest.Measured([]int{10, 10}, x.seconds, 1.5)
		report.Nodes[0].Status = cluster.Late
		if err := p.Decide(report, nil, &cluster.Plan{Sizes: sizes}); err != nil {
			t.Fatal(err)
		}
		if got := p.nodes[0].slowdown; math.Abs(got-x.want) > 1e-12 {
			t.Errorf("late beyond %v s: slowdown %v, want %v", x.seconds, got, x.want)
		}
	}
}
