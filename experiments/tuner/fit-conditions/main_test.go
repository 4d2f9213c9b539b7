package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/internal/race"
)

// known are the parameters that the folder below is made with.
const (
	knownBias, knownNoise, knownSigma       = 0.08, 0.02, 0.5
	knownRate, knownMore                    = 0.04, 0.3
	knownDrift, knownRounds                 = 0.05, 60.0
	knownShared, knownCapped, knownSpread   = 0.6, 0.2, 0.7
	knownLength, knownBurst                 = 6, 1.5
	seriesCount, jobCount, jobLength, pairs = 200, 30, 200, 600
)

// folder writes measurements of a world with the parameters above.
func folder(t *testing.T) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	lognormal := func(middle, sigma float64) float64 { return middle * math.Exp(sigma*rng.NormFloat64()) }
	var steps, cov, walk, shared, capped strings.Builder
	steps.WriteString("device,precision,num_gpus,model,step,step_ms\n")
	for s := range seriesCount {
		sd := lognormal(knownNoise, knownSigma)
		for k := range 50 {
			f := 1 + sd*rng.NormFloat64()
			if rng.Float64() < knownRate {
				f += 0.1 + knownMore*rng.ExpFloat64() // 0.1: the preset's least
			}
			if k < warmup {
				f *= 3
			}
			fmt.Fprintf(&steps, "d,float,%d,m%d,%d,%g\n", 1+3*(s%2), s, k, 100*max(f, 0.1))
		}
	}
	cov.WriteString("job,iteration,cov\n")
	for j := range jobCount {
		constant := make([]float64, workers)
		for i := range constant {
			constant[i] = math.Exp(knownBias * rng.NormFloat64())
		}
		for k := range jobLength {
			sum, square := 0.0, 0.0
			for i := range constant {
				v := constant[i] * (1 + knownNoise*rng.NormFloat64())
				if i == 0 && k%50 < knownLength {
					v *= 1 + knownBurst
				}
				sum, square = sum+v, square+v*v
			}
			mean := sum / workers
			fmt.Fprintf(&cov, "%d,%d,%g\n", j, k, math.Sqrt((square-sum*mean)/(workers-1))/mean)
		}
	}
	walk.WriteString("job,worker,gpu_share_pct,time_index,batch_time_norm\n")
	keep := math.Exp(-sampled / knownRounds)
	for w := range 30 {
		x := knownDrift * rng.NormFloat64()
		for k := range 300 {
			fmt.Fprintf(&walk, "%d,%d,25,%d,%g\n", w%3, w, 1+k*sampled, 500*math.Exp(x))
			x = keep*x + knownDrift*math.Sqrt(1-keep*keep)*rng.NormFloat64()
		}
	}
	shared.WriteString("slowdown_a,ran\n,0\n")
	capped.WriteString("power_limit_w,slowdown_vs_max_power\n250,1\n150,0.99\n")
	for range pairs {
		fmt.Fprintf(&shared, "%g,1\n", 1+lognormal(knownShared, knownSpread))
		fmt.Fprintf(&capped, "125,%g\n", 1+lognormal(knownCapped, knownSpread))
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"variability/cnn_step_ms.csv": steps.String(), "variability/pai_cross_worker_cov.csv": cov.String(),
		"variability/bytedance_microbatch_ms.csv": batches(rng), "variability/pai_minibatch_time.csv": walk.String(), "gavel/gavel_colocation.csv": shared.String(), "zeus/powercap_slowdown.csv": capped.String(),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDerive(t *testing.T) {
	d, err := readData(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	params, err := derive(d)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name             string
		value, tolerance float64 // relative
	}{
		{"bias", knownBias, 0.15}, {"noise.median", knownNoise, 0.1}, {"noise.sigma", knownSigma, 0.12},
		{"spikes.rate", knownRate, 0.15}, {"spikes.more", knownMore, 0.15},
		{"drift.sd", knownDrift, 0.12}, {"drift.rounds", knownRounds, 0.25},
		{"interference, colocated: excess.median", knownShared, 0.1}, {"interference, colocated: excess.sigma", knownSpread, 0.1},
		{"bursts: rounds", knownLength, 0.01}, {"bursts: excess.median", knownBurst, 0.15}, {"bursts: excess.sigma", 0, 0},
		{"powercap: excess.median", knownCapped, 0.1}, {"powercap: excess.sigma", knownSpread, 0.1},
	}
	if len(params) != len(want) {
		t.Fatalf("%d parameters, want %d", len(params), len(want))
	}
	for i, p := range params {
		w := want[i]
		if p.name != w.name {
			t.Errorf("parameter %d is %s, want %s", i, p.name, w.name)
		}
		// The bursts were all made alike: what their excess differs by is bias.
		if w.value == 0 && p.found > 0.2 || w.value > 0 && math.Abs(p.found/w.value-1) > w.tolerance {
			t.Errorf("%s: %.4f, made with %.4f", p.name, p.found, w.value)
		}
		if !(p.low <= p.high) {
			t.Errorf("%s: interval %.4f to %.4f", p.name, p.low, p.high)
		}
	}
}

// The simulator's own measurements give the preset's parameters back.
func TestSpikeLaw(t *testing.T) {
	c, err := cluster.Preset("steady")
	if err != nil {
		t.Fatal(err)
	}
	fleets, err := play(context.Background(), c, 60, 50)
	if err != nil {
		t.Fatal(err)
	}
	rate, more := spikeLaw(slices.Concat(fleets...), c.Spikes.Least)
	if math.Abs(rate/c.Spikes.Rate-1) > 0.2 || math.Abs(more/c.Spikes.More-1) > 0.2 {
		t.Errorf("rate %.4f, more %.3f of %+v", rate, more, c.Spikes)
	}
	if m := median(noises(slices.Concat(fleets...))); math.Abs(m/c.Noise.Median-1) > 0.15 {
		t.Errorf("noise %.4f of %+v", m, c.Noise)
	}
}

func TestSlowest(t *testing.T) {
	for _, x := range []float64{0.1, 1, 8} {
		mean := 1 + x/workers
		c := math.Sqrt((x*x-x*x/workers)/(workers-1)) / mean
		if got := slowest(c); math.Abs(got-x) > 1e-9 {
			t.Errorf("slowest(%v) = %v, want %v", c, got, x)
		}
	}
	if !math.IsInf(slowest(4), 1) {
		t.Error("no worker of ten can be that slow")
	}
}

func TestRun(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine; its numbers are judged without the race detector")
	}
	data := folder(t)
	var out strings.Builder
	if err := run(context.Background(), data, &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| noise.median |", "| production: noise_within |", "| Slowdown by a power cap - 1 |", "\n| simulated |"} {
		if strings.Count(out.String(), row) != 1 {
			t.Errorf("no row %s in\n%s", row, out.String())
		}
	}
	if err := os.WriteFile(filepath.Join(data, "gavel", "gavel_colocation.csv"), []byte("slowdown_a,ran\n1.5,1\n0,1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readData(data); err == nil || !strings.Contains(err.Error(), "row 3") {
		t.Error(err)
	}
	if _, err := readData(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
}
