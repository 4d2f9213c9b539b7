package env

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/env/internal/envtest"
)

// A first size of 20: three quarters of the time there grow with it, give or take 0.3.
func TestShapeByHand(t *testing.T) {
	var f shape
	if f.off(7) != 0 {
		t.Error("a form that is known is off")
	}
	f.begin(20, 5)
	if want := (shape{20, 0.95 / 20, 0.0036 / 400}); !near(f.slope, want.slope) || !near(f.doubt, want.doubt) || f.at != 20 {
		t.Fatalf("in 5 micro-steps: %+v, want %+v", f, want)
	}
	if f.begin(20, 100); !near(f.slope, 0.9975/20) || !near(f.doubt, 0.0009/400) {
		t.Fatalf("in 100 micro-steps: %+v", f)
	}
	f.begin(20, 1)
	if want := (shape{20, 0.75 / 20, 0.09 / 400}); !near(f.slope, want.slope) || !near(f.doubt, want.doubt) || f.at != 20 {
		t.Fatalf("%+v, want %+v", f, want)
	}
	if got := f.off(20); got != 0 {
		t.Errorf("the size that the slowdown rests on is off by %v", got)
	}
	// Half of the size takes 0.625 of the time; a slope larger by 0.01 makes that 0.525, 16% less.
	if !near(f.lever(10), -16) || !near(f.off(10), 256*0.000225) {
		t.Errorf("lever %v, off by %v; want -16, 0.0576", f.lever(10), f.off(10))
	}
	g := f
	g.learn(10, 0.2, 0.0256) // in all 0.0576 + 0.0256 + 0.0144
	if slope, doubt := 0.0375-0.2*16*0.000225/0.0976, 0.000225*0.04/0.0976; !near(g.slope, slope) || math.Abs(g.doubt-doubt) > 1e-12 || g.at != 20 {
		t.Errorf("%+v, want slope %v, doubt %v", g, slope, doubt)
	}
	for residual, slope := range map[float64]float64{9: 0.1 / 20, -0.9: 1.0 / 20} {
		g = f
		if g.learn(1, residual, 0); !near(g.slope, slope) {
			t.Errorf("residual %v: slope %v, want the bound %v", residual, g.slope, slope)
		}
	}
	g = f
	for range 5000 {
		g.learn(10, 0, 0)
	}
	if !near(g.doubt, 0.0009/400) {
		t.Errorf("the doubt ends at %v", g.doubt)
	}
	node := &cluster.Node{Network: 0.5}
	line, seconds := f.line(node, 4), func(f shape, p cluster.Performance, b float64) float64 { return p.Overhead + b*p.PerSample }
	if !near(seconds(f, line, 20), 4.5) || !near(line.PerSample, 0.15) {
		t.Errorf("%+v", line)
	}
	// The slowdown rests on 25 from now on; the line is the same.
	f.move(30, 0.5)
	if moved := f.line(node, 4*1.1875); f.at != 25 || !near(moved.PerSample, line.PerSample) || !near(moved.Overhead, line.Overhead) || !near(f.doubt, 0.000225/math.Pow(1.1875, 4)) {
		t.Errorf("%+v of %+v, want %+v", moved, f, line)
	}
	known := shape{}
	if known.move(30, 0.5); known != (shape{}) {
		t.Errorf("a form that is known moves: %+v", known)
	}
}

// unknown is a tracker of one node without a profile that takes at + per b seconds.
func unknown(t *testing.T) (*Tracker, *cluster.Cluster) {
	t.Helper()
	c := envtest.Mixed(t, 1)
	c.Nodes[0].Profile, c.Nodes[0].Network = nil, 0
	return NewTracker(c), c
}

func oneNode(size int, seconds float64) *cluster.Report {
	return &cluster.Report{Wait: time.Duration(seconds * 1e9), Accepted: size, Nodes: []cluster.NodeReport{
		{Status: cluster.In, Size: size, Samples: size, Seconds: seconds},
	}}
}

// The line of a node without a profile is found from sizes that differ, whatever its overhead, and with it what
// the node takes at sizes it never had.
func TestShapeFindsALine(t *testing.T) {
	for _, overhead := range []float64{0, 0.2, 0.5, 0.85} {
		t.Run(fmt.Sprint(overhead), func(t *testing.T) {
			tracker, c := unknown(t)
			perf, actions := c.Nominal(), make([]int, 1)
			rng := rand.New(rand.NewPCG(1, 2))
			per := (1 - overhead) / 30
			truth := func(b int) float64 { return overhead + per*float64(b) }
			for k := range 40 {
				b := []int{30, 12, 20, 45}[k%4]
				tracker.Observe(oneNode(b, truth(b)*(1+0.01*rng.NormFloat64())))
				tracker.Model(actions)
				tracker.Apply(actions, perf)
			}
			n := &tracker.nodes[0]
			for _, b := range []int{8, 25, 60} {
				got := c.Nodes[0].Finish(c.Nodes[0].Slowed(n.base, n.slowdown), b)
				if math.Abs(got/truth(b)-1) > 0.05 {
					t.Errorf("%d samples take %.3f of the truth", b, got/truth(b))
				}
			}
			if n.deviation() > 0.05 {
				t.Errorf("other sizes count as noise: %v", n.deviation())
			}
		})
	}
}

// A node without a profile that becomes four times slower keeps the form of its line: its
// slowdown moves at once, and back.
func TestShapeOutlastsAJump(t *testing.T) {
	tracker, c := unknown(t)
	perf, actions := c.Nominal(), make([]int, 1)
	round := func(b int, slow float64) {
		tracker.Observe(oneNode(b, slow*(0.3+0.02*float64(b))))
		tracker.Model(actions)
		tracker.Apply(actions, perf)
	}
	for k := range 30 {
		round([]int{30, 20, 40}[k%3], 1)
	}
	before := tracker.nodes[0].form
	round(18, 4) // a jump that meets a change of size is no matter of form
	before.move(18, 1)
	if f := &tracker.nodes[0].form; math.Abs(f.slope*f.at-before.slope*before.at) > 0.02 {
		t.Errorf("the form went from %+v to %+v at the jump", before, f)
	}
	round(30, 4)
	round(30, 4)
	before.move(30, 1)
	n := &tracker.nodes[0]
	if got := n.slowdown / n.level; math.Abs(got-4) > 0.05 {
		t.Errorf("slowdown %v over the level, want 4", got)
	}
	if math.Abs(n.form.slope*n.form.at-before.slope*before.at) > 0.05 {
		t.Errorf("the form went from %+v to %+v", before, n.form)
	}
	round(30, 1)
	round(30, 1)
	if got := n.slowdown / n.level; math.Abs(got-1) > 0.02 {
		t.Errorf("slowdown %v over the level, want 1", got)
	}
}

// Rounds of .2 s of a node whose micro-steps of 8 samples take 4 ms and 1.2 ms a sample, under noise of 10%: however it scatters, the line is within 10% that of the
// micro-steps (10 ms below .1 s), not a flat one through rounds that all took as long.
func TestFormUnderADeadline(t *testing.T) {
	for seed := range uint64(10) {
		tracker, c := unknown(t)
		c.Nodes[0].Limit, c.Collect.AutoDeadline = 8, true
		rng := rand.New(rand.NewPCG(seed, 1))
		perf, actions := c.Nominal(), make([]int, 1)
		for range 300 {
			slow := math.Exp(0.1 * rng.NormFloat64())
			samples, steps, seconds := 0, 0, 0.0
			for step := (0.004 + 8*0.0012) * slow; seconds+step < 0.2; seconds += step {
				samples += 8
				steps++
			}
			if rest := int(((0.2-seconds)/slow - 0.004) / 0.0012); rest > 0 {
				samples, steps, seconds = samples+rest, steps+1, 0.2
			}
			report := oneNode(samples, seconds)
			report.Nodes[0].Steps = steps
			tracker.Observe(report)
			tracker.Model(actions)
			tracker.Apply(actions, perf)
		}
		for _, share := range []int{8, 40, 240} {
			truth := float64(share) / 8 * (0.004 + 8*0.0012)
			if got := c.Nodes[0].Finish(perf[0], share); math.Abs(got-truth) > 0.1*max(truth, 0.1) {
				t.Errorf("seed %d: a share of %d is thought to take %v, it takes %v", seed, share, got, truth)
			}
		}
	}
}
