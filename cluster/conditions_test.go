package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/cluster/profile"
)

func TestPresets(t *testing.T) {
	for _, name := range Presets() {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(Presets()) != len(presets) {
		t.Error("a preset is not listed")
	}
	if _, err := Preset("stedy"); !errors.Is(err, ErrPreset) || !strings.Contains(err.Error(), "steady, drift") {
		t.Error(err)
	}
	// Every call returns conditions of their own.
	a, _ := Preset("bursts")
	a.Episodes[0].Rate = 1
	if b, _ := Preset("bursts"); b.Episodes[0].Rate == 1 {
		t.Error("presets share their episodes")
	}
	a, _ = Preset("mixture")
	a.Patterns[0].Lag = 1
	if b, _ := Preset("mixture"); b.Patterns[0].Lag == 1 || len(b.Patterns) != 6 {
		t.Error("presets share their patterns")
	}
}

func TestConditionsValidate(t *testing.T) {
	c := Conditions{
		Bias: math.NaN(), Noise: Spread{-1, math.Inf(1)}, Spikes: Spikes{2, -1, -1, 2}, Drift: Drift{SD: 1, SlowSD: 1},
		NoiseWithin: 2, Job: Job{-1, 4, 4, 4}, Straggler: Straggler{Chance: 2, Excess: Spread{100, 4}, SD: 1},
		Episodes: []Episode{{Rate: 1, Rounds: 1}, {Rate: -1, Excess: Spread{9, 4}, AtStart: 2}},
		Failures: Failures{Rate: 0.5, Silent: -1}, Joins: Joins{Share: 2, Rounds: -1}, Scale: NoiseScale{Start: 1},
	}
	want := `bias is NaN; it must lie in 0..3
noise.median is -1; it must lie in 0..0.5
noise.sigma is +Inf; it must lie in 0..3
spikes.rate is 2; it must lie in 0..1
spikes.least is -1; it must lie in 0..100
spikes.more is -1; it must lie in 0..100
spikes.again is 2; it must lie in 0..1
drift.rounds is 0; it must lie in 1..1000000000
drift.slow_rounds is 0; it must lie in 1..1000000000
episodes[1].rate is -1; it must lie in 0..1
episodes[1].rounds is 0; it must lie in 1..1000000000
episodes[1].excess.median is 9; it must lie in 0..8
episodes[1].excess.sigma is 4; it must lie in 0..3
episodes[1].at_start is 2; it must lie in 0..1
failures.silent is -1; it must lie in 0..1
failures.rounds is 0; it must lie in 1..1000000000
joins.share is 2; it must lie in 0..1
joins.rounds is -1; it must lie in 0..1000000000
noise_scale.end is 0; it must lie in 0.001..1000000000
noise_scale.rounds is 0; it must lie in 1..1000000000
noise_within is 2; it must lie in 0..1
job.noise is -1; it must lie in 0..3
job.bias is 4; it must lie in 0..3
job.spikes is 4; it must lie in 0..3
job.episodes is 4; it must lie in 0..3
straggler.chance is 2; it must lie in 0..1
straggler.excess.median is 100; it must lie in 0..99
straggler.excess.sigma is 4; it must lie in 0..3
straggler.rounds is 0; it must lie in 1..1000000000`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if err := (&Conditions{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}

func TestObjectives(t *testing.T) {
	o := Objectives{-1, math.NaN(), 2e9, -2}
	want := `speed is -1; it must lie in 0..1000000000
waiting is NaN; it must lie in 0..1000000000
freshness is 2000000000; it must lie in 0..1000000000
energy is -2; it must lie in 0..1000000000`
	if err := o.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if (Objectives{}).Validate() != nil || (Objectives{0, 3, 1, 0}).Weights() != [4]float64{0, 0.75, 0.25, 0} {
		t.Error("weights")
	}
	c := &Cluster{Nodes: make([]Node, 3)}
	if err := (Objectives{Energy: 2}).Check(c); err == nil || err.Error() != "energy is 2, but no node has a known power; give nodes a power: {idle, busy}" {
		t.Error(err)
	}
	if (Objectives{Speed: 1}).Check(c) != nil {
		t.Error("speed needs no power")
	}
	if c.Nodes[2].Power.Busy = 100; (Objectives{Energy: 2}).Check(c) != nil {
		t.Error("one node's power is known")
	}
}

func TestDraws(t *testing.T) {
	c := Conditions{Noise: Spread{0.03, 1.2}}
	e := Episode{Excess: Spread{0.5, 1}}
	for z, want := range map[float64][2]float64{0: {0.03, 1.5}, 9: {maxNoise, 1 + maxExcess}, -9: {minNoise, 1 + 0.5*math.Exp(-9)}} {
		if n, s := c.DrawNoise(z), e.DrawSlowdown(z); n != want[0] || math.Abs(s-want[1]) > 1e-15 {
			t.Errorf("at %v: %v %v, want %v", z, n, s, want)
		}
	}
	strong := Conditions{Noise: Spread{0.5, 0.3}}
	if strong.DrawNoise(0.1) != 0.5 || strong.DrawNoise(-1) != 0.5*math.Exp(-0.3) {
		t.Error("a median above maxNoise is its own bound")
	}
	if (&Conditions{}).DrawNoise(3) != 0 {
		t.Error("a median of zero switches noise off")
	}
}

func TestLeastSquares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		overhead, per := rapid.Float64Range(0, 5).Draw(t, "overhead"), rapid.Float64Range(1e-4, 10).Draw(t, "per sample")
		f := NewLeastSquares(rapid.Float64Range(0.5, 1).Draw(t, "forget"))
		first := rapid.IntRange(1, 1000).Draw(t, "size")
		for k := range rapid.IntRange(1, 40).Draw(t, "rounds") {
			size := float64(first * (1 + k%3))
			f.Add(size, overhead+per*size)
		}
		given := rapid.Float64Range(0, 5).Draw(t, "given")
		p, ok := f.Performance(given)
		if !ok || !(p.PerSample > 0) || !(p.Overhead >= 0) || math.IsInf(p.PerSample, 0) {
			t.Fatalf("%+v", p)
		}
		if f.n == 1 { // one size: the overhead is as given, the line meets the point unless that exceeds it
			at := p.Overhead + p.PerSample*float64(first)
			if want := overhead + per*float64(first); p.Overhead != given || given < 0.99*want && math.Abs(at-want) > 1e-9*want {
				t.Fatalf("%+v, want %v", p, want)
			}
			return
		}
		at := func(p Performance, size float64) float64 { return p.Overhead + p.PerSample*size }
		for _, size := range []float64{float64(first), 2 * float64(first), 10 * float64(first)} {
			if want := at(Performance{overhead, per}, size); math.Abs(at(p, size)-want) > 1e-6*want {
				t.Fatalf("%+v at %v: %v, want %v", p, size, at(p, size), want)
			}
		}
	})
}

func TestLeastSquaresDegenerate(t *testing.T) {
	f := NewLeastSquares(0.9)
	if _, ok := f.Performance(1); ok {
		t.Error("an empty fit has no parameters")
	}
	for range 50 {
		f.Add(8, 4)
	}
	if p, _ := f.Performance(1); p.Overhead != 1 || math.Abs(p.PerSample-3./8) > 1e-12 {
		t.Errorf("one size: %+v", p)
	}
	// Slower with fewer samples: no line falls, the mean it is.
	f = NewLeastSquares(1)
	f.Add(4, 2)
	f.Add(8, 1)
	if p, _ := f.Performance(0); p.Overhead != 0 || p.PerSample != 0.25 {
		t.Errorf("falling: %+v", p)
	}
	// A line that would start below zero.
	f = NewLeastSquares(1)
	f.Add(4, 1)
	f.Add(8, 10)
	if p, _ := f.Performance(0.5); p.Overhead != 0.5 || !(p.PerSample > 0) {
		t.Errorf("negative overhead: %+v", p)
	}
	// Old measurements fade.
	f = NewLeastSquares(0.5)
	f.Add(1, 100)
	f.Add(9, 900)
	for k := range 60 {
		size := float64(1 + k%9)
		f.Add(size, 1+2*size)
	}
	if p, _ := f.Performance(0); math.Abs(p.Overhead-1) > 1e-6 || math.Abs(p.PerSample-2) > 1e-6 {
		t.Errorf("faded: %+v", p)
	}
}

func TestNominal(t *testing.T) {
	lookup := func(device string) *profile.Profile {
		p, err := profile.Embedded().Lookup(device, "resnet-50")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	c := &Cluster{Nodes: []Node{{Profile: lookup("v100"), Network: 2.24, TFLOPS: 15.7}, {Profile: lookup("k80"), TFLOPS: 4.1}, {TFLOPS: 65}}}
	perf := c.Nominal()
	reference, known := 0.0, 0.0
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Profile != nil {
			if perf[i] != (Performance{n.Network, n.Profile.PerSample()}) {
				t.Errorf("%d: %+v", i, perf[i])
			}
			reference, known = reference+n.Profile.PerSample()*n.TFLOPS, known+1
		}
	}
	if got, want := perf[2].PerSample, reference/known/65; math.Abs(got-want) > 1e-15 {
		t.Errorf("by nameplate: %v, want %v", got, want)
	}
	bare := &Cluster{Nodes: []Node{{}, {TFLOPS: 4}}}
	if p := bare.Nominal(); p[0].PerSample != 1 || p[1].PerSample != 0.25 {
		t.Errorf("without profiles: %+v", p)
	}
}

// describe is a pattern as the format document has it; what is zero is left out.
func describe(p *Pattern) string {
	text := "per " + cmp.Or(p.Per, PerNode)
	add := func(format string, value any) {
		if !reflect.ValueOf(value).IsZero() {
			text += ", " + fmt.Sprintf(format, value)
		}
	}
	spread := func(s Spread) string { return fmt.Sprintf("%v (%v)", s.Median, s.Sigma) }
	add("size %v", p.Size)
	add("share %v", p.Share)
	add("every %v", spread(p.Every))
	add("length %v", spread(p.Length))
	add("vary %v", p.Vary)
	if !p.Announced {
		add("excess %v", spread(p.Excess))
	}
	add("lag %v", p.Lag)
	if p.Ramp {
		text += ", ramp"
	}
	if p.Hop {
		text += ", hop"
	}
	if p.Announced {
		text += ", announced"
	}
	add("notice %v", p.Notice)
	add("sign %v", p.Sign)
	return text
}

// The table of the format document must say what the presets are.
func TestPresetsDocumented(t *testing.T) {
	source, err := os.ReadFile("../docs/reference/formats/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(preset, format string, args ...any) {
		if want := fmt.Sprintf("| %s | %s |", preset, fmt.Sprintf(format, args...)); !strings.Contains(string(source), want) {
			t.Errorf("docs/reference/formats/cluster.md lacks %s", want)
		}
	}
	b := base()
	row("all", "bias %v", b.Bias)
	row("all", "noise median %v, sigma %v", b.Noise.Median, b.Noise.Sigma)
	row("all", "spikes rate %v, least %v, more %v", b.Spikes.Rate, b.Spikes.Least, b.Spikes.More)
	row("all", "noise_scale %v to %v over %v", b.Scale.Start, b.Scale.End, b.Scale.Rounds)
	for _, name := range Presets() {
		c, _ := Preset(name)
		label := "`" + name + "`"
		for _, e := range c.Episodes {
			start := ""
			if e.AtStart > 0 {
				start = fmt.Sprintf(", at_start %v", e.AtStart)
			}
			row(label, "episodes rate %v, rounds %v, excess median %v, sigma %v%s", e.Rate, e.Rounds, e.Excess.Median, e.Excess.Sigma, start)
		}
		if d := c.Drift; d.SlowSD > 0 {
			row(label, "drift sd %v, rounds %v, slow_sd %v, slow_rounds %v", d.SD, d.Rounds, d.SlowSD, d.SlowRounds)
		} else if d.SD > 0 {
			row(label, "drift sd %v, rounds %v", d.SD, d.Rounds)
		}
		if j := c.Job; j != (Job{}) {
			row(label, "bias %v, over runs %v", c.Bias, j.Bias)
			row(label, "noise median %v, sigma %v, over runs %v", c.Noise.Median, c.Noise.Sigma, j.Noise)
			row(label, "spikes rate %v, least %v, more %v, again %v, over runs %v", c.Spikes.Rate, c.Spikes.Least, c.Spikes.More, c.Spikes.Again, j.Spikes)
			row(label, "noise_within %v", c.NoiseWithin)
		} else if b := base(); c.Bias != b.Bias || c.Noise != b.Noise || c.Spikes != b.Spikes {
			t.Errorf("%s departs from what all presets have", name)
		}
		if s := c.Straggler; s.Chance > 0 {
			row(label, "straggler chance %v, excess median %v, sigma %v, sd %v, rounds %v", s.Chance, s.Excess.Median, s.Excess.Sigma, s.SD, s.Rounds)
		}
		if f := c.Failures; f.Rate > 0 {
			row(label, "failures rate %v, rounds %v, silent %v", f.Rate, f.Rounds, f.Silent)
		}
		if j := c.Joins; j.Share > 0 {
			row(label, "joins share %v, rounds %v", j.Share, j.Rounds)
		}
		if r := c.Racks; r.Size > 0 {
			row(label, "racks size %v, rate %v, rounds %v, excess median %v, sigma %v", r.Size, r.Rate, r.Rounds, r.Excess.Median, r.Excess.Sigma)
		}
		if d := c.Diurnal; d.Amplitude > 0 {
			row(label, "diurnal amplitude %v, rounds %v", d.Amplitude, d.Rounds)
		}
		if k := c.Creep; k.Share > 0 {
			row(label, "creep share %v, rounds %v, most %v", k.Share, k.Rounds, k.Most)
		}
		if m := c.Modes; m.Share > 0 {
			row(label, "modes share %v, excess %v, rounds %v", m.Share, m.Excess, m.Rounds)
		}
		if w := c.Wrong; w.Share > 0 {
			row(label, "wrong share %v, factor %v", w.Share, w.Factor)
		}
		if k := c.Clocks; k.SD > 0 {
			row(label, "clocks sd %v", k.SD)
		}
		if len(c.Patterns) > 1 {
			row(label, "these six, turns %v (%v)", c.Turns.Median, c.Turns.Sigma)
		} else if len(c.Patterns) == 1 {
			row(label, "%s", describe(&c.Patterns[0]))
		}
	}
}
