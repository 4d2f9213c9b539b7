package cluster

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster/trace"
	"evenkeel/internal/badinput"
)

// Conditions describes how the nodes of a cluster depart from their profiles, round
// by round, or by time (Pattern). With the zero value the nodes keep to their profiles exactly. Presets are fitted
// to measurements, except for Stress and patterns; docs/reference/formats/cluster.md has the table with
// the file behind each number, experiments/tuner/fit-conditions makes it.
type Conditions struct {
	Bias     float64    `yaml:"bias,omitempty" json:"bias"`         // sd over nodes of the log of the constant departure from the profile, 0..3
	Noise    Spread     `yaml:"noise,omitempty" json:"noise"`       // over nodes: relative sd of one round's time
	Spikes   Spikes     `yaml:"spikes,omitempty" json:"spikes"`     // single slow rounds of a node
	Drift    Drift      `yaml:"drift,omitempty" json:"drift"`       // slow wandering of a node's speed
	Episodes []Episode  `yaml:"episodes,omitempty" json:"episodes"` // spells of slowness
	Failures Failures   `yaml:"failures,omitempty" json:"failures"` // nodes that fail and return
	Joins    Joins      `yaml:"joins,omitempty" json:"joins"`       // nodes that come later
	Scale    NoiseScale `yaml:"noise_scale,omitempty" json:"noise_scale"`
	Stress   `yaml:",inline"`

	Job       Job       `yaml:"job,omitempty" json:"job,omitzero"`             // what the nodes of one run have in common
	Straggler Straggler `yaml:"straggler,omitempty" json:"straggler,omitzero"` // one slow node among equals

	// NoiseWithin is the share of a round's noise variance that each of its micro-steps
	// has to itself, 0..1; the rest is common to them.
	NoiseWithin float64 `yaml:"noise_within,omitempty" json:"noise_within,omitzero"`

	// Patterns act all at once; with Turns one of them, or none, at a time, for so many nominal rounds: median 1..1e9.
	Patterns []Pattern `yaml:"patterns,omitempty" json:"patterns,omitempty"`
	Turns    Spread    `yaml:"turns,omitempty" json:"turns,omitzero"`

	Replay trace.Replay `yaml:"replay,omitempty" json:"replay,omitzero"` // measured times; multiplies the rest
}

// Spread is a log-normal distribution: its median and the sd of its logarithm.
type Spread struct {
	Median float64 `yaml:"median,omitempty" json:"median"` // noise 0..0.5, excess 0..8; zero switches the thing off
	Sigma  float64 `yaml:"sigma,omitempty" json:"sigma"`   // 0..3
}

// Spikes are single rounds that take longer by Least plus an exponential of mean More.
type Spikes struct {
	Rate  float64 `yaml:"rate,omitempty" json:"rate"`            // per node and round, 0..1
	Least float64 `yaml:"least,omitempty" json:"least"`          // relative, 0..100
	More  float64 `yaml:"more,omitempty" json:"more"`            // relative, 0..100
	Again float64 `yaml:"again,omitempty" json:"again,omitzero"` // chance that the round after a spike is one too, 0..1; zero: Rate
}

// Drift is an Ornstein-Uhlenbeck process of the log slowdown, or the sum of a quick one
// and a slow one.
type Drift struct {
	SD         float64 `yaml:"sd,omitempty" json:"sd"`         // stationary, 0..3
	Rounds     float64 `yaml:"rounds,omitempty" json:"rounds"` // correlation time, 1..1e9 where SD is above 0
	SlowSD     float64 `yaml:"slow_sd,omitempty" json:"slow_sd,omitzero"`
	SlowRounds float64 `yaml:"slow_rounds,omitempty" json:"slow_rounds,omitzero"`
}

// Job says how runs differ from one another. Each field is the sd of the log of a factor
// that is drawn once per run and common to its nodes. Zero: all runs have the level of the
// conditions.
type Job struct {
	Noise    float64 `yaml:"noise,omitempty" json:"noise,omitzero"`       // of a factor of noise and drift, median 1; 0..3
	Bias     float64 `yaml:"bias,omitempty" json:"bias,omitzero"`         // of a factor of the bias, median 1; 0..3
	Spikes   float64 `yaml:"spikes,omitempty" json:"spikes,omitzero"`     // of a factor of the spikes' rate, mean 1; 0..3
	Episodes float64 `yaml:"episodes,omitempty" json:"episodes,omitzero"` // of a factor of the episodes' rates, mean 1; 0..3
}

// Straggler is one node, any of a run's, that is slow throughout. Its time is multiplied
// by 1 + excess, where the log of the excess wanders around a level drawn once per run.
type Straggler struct {
	Chance float64 `yaml:"chance,omitempty" json:"chance"` // that a run has one, 0..1
	Excess Spread  `yaml:"excess,omitempty" json:"excess"` // of slowdown - 1 over runs; median 0..99, clipped at 99
	SD     float64 `yaml:"sd,omitempty" json:"sd"`         // of the log of the excess around its level, 0..3
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // correlation time, 1..1e9 where SD is above 0
}

// Episode is a spell of slowness: it starts at random, lasts a geometric number of
// rounds and multiplies the node's time by 1 + excess.
type Episode struct {
	Rate    float64 `yaml:"rate,omitempty" json:"rate"`         // starts per idle node and round, 0..1; none in the round after a spell
	Rounds  float64 `yaml:"rounds" json:"rounds"`               // mean length, 1..1e9
	Excess  Spread  `yaml:"excess" json:"excess"`               // of slowdown - 1
	AtStart float64 `yaml:"at_start,omitempty" json:"at_start"` // share of nodes that begin in one, 0..1
}

// Failures are nodes that die in the middle of a round and come back.
type Failures struct {
	Rate   float64 `yaml:"rate,omitempty" json:"rate"`     // per node and round, 0..1
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // mean absence, 1..1e9 where Rate is above 0
	Silent float64 `yaml:"silent,omitempty" json:"silent"` // share that hang and are noticed only by the missed heartbeat, 0..1
}

// Joins are nodes that are not there from the beginning.
type Joins struct {
	Share  float64 `yaml:"share,omitempty" json:"share"`   // of the nodes, 0..1; the first node is always there
	Rounds int     `yaml:"rounds,omitempty" json:"rounds"` // 0..1e9; they join evenly spread over this many rounds
}

// NoiseScale is the gradient noise scale, in global batches, growing geometrically
// with the samples seen (McCandlish et al. 2018; values from Pollux's published runs).
type NoiseScale struct {
	Start  float64 `yaml:"start,omitempty" json:"start"`   // 0.001..1e9; all zero: statistical efficiency is 1
	End    float64 `yaml:"end,omitempty" json:"end"`       // 0.001..1e9
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // global batches from Start to End, 1..1e9
	// Norms is the sd of the logarithm of a gradient's norm in a round, 0..1. The mean of the squared norm stays as
	// expected. Zero: each norm is as expected.
	Norms float64 `yaml:"norms,omitempty" json:"norms,omitzero"`
}

// maxExcess and maxNoise clip the tails of the log-normal distributions to what was
// measured: an eightfold slowdown by a co-located job, 20% of step noise. A median
// beyond that, to see what breaks, is its own bound.
const (
	maxExcess = 8
	minNoise  = 0.001
	maxNoise  = 0.2
	maxMedian = 0.5
)

// Draw maps a standard normal number to the distribution.
func (s Spread) Draw(z float64) float64 { return s.Median * math.Exp(s.Sigma*z) }

// DrawNoise is a node's noise deviation from a standard normal number.
func (c *Conditions) DrawNoise(z float64) float64 {
	if c.Noise.Median == 0 {
		return 0
	}
	return min(max(c.Noise.Draw(z), minNoise), max(maxNoise, c.Noise.Median))
}

// DrawJob returns the conditions of one run from standard normal numbers: for noise and
// drift, bias, spikes and episodes. Levels end at the bounds of the fields.
func (c *Conditions) DrawJob(z [4]float64) Conditions {
	run, j := *c, c.Job
	if j == (Job{}) {
		return run
	}
	noise, bias := math.Exp(j.Noise*z[0]), math.Exp(j.Bias*z[1])
	spikes, episodes := math.Exp(j.Spikes*(z[2]-j.Spikes/2)), math.Exp(j.Episodes*(z[3]-j.Episodes/2))
	run.Noise.Median = min(run.Noise.Median*noise, maxMedian)
	run.Drift.SD = min(run.Drift.SD*noise, maxSD)
	run.Drift.SlowSD = min(run.Drift.SlowSD*noise, maxSD)
	run.Bias = min(run.Bias*bias, maxSD)
	run.Spikes.Rate = min(run.Spikes.Rate*spikes, 1)
	run.Episodes = slices.Clone(run.Episodes)
	for i := range run.Episodes {
		run.Episodes[i].Rate = min(run.Episodes[i].Rate*episodes, 1)
	}
	return run
}

// Slowdown is the straggler's from standard normal numbers: its level's and that of the
// round.
func (s *Straggler) Slowdown(level, wander float64) float64 {
	return 1 + min(s.Excess.Draw(level)*math.Exp(s.SD*wander), maxFactor-1)
}

// DrawSlowdown is an episode's slowdown from a standard normal number.
func (e *Episode) DrawSlowdown(z float64) float64 { return 1 + min(e.Excess.Draw(z), maxExcess) }

// base is what every preset shares: the departure of a node from its profile
// (variability/pai_cross_worker_cov.csv), step noise and spikes
// (variability/cnn_step_ms.csv), and the growth of the noise scale.
func base() Conditions {
	return Conditions{
		Bias:   0.065,
		Noise:  Spread{Median: 0.030, Sigma: 1.2},
		Spikes: Spikes{Rate: 0.035, Least: 0.1, More: 0.19},
		Scale:  NoiseScale{Start: 0.6, End: 72, Rounds: 20000},
	}
}

// gpuSharing is the slowdown of a job that shares its GPU with another
// (gavel/gavel_colocation.csv, 690 pairs).
var gpuSharing = Spread{Median: 0.777, Sigma: 0.8}

// production sets conditions as measured in two production clusters. Bias, levels of a
// job, bursts and the straggler: variability/pai_cross_worker_cov.csv; noise, drift and how
// often spikes come: variability/pai_minibatch_time.csv; the spikes' size and clusters:
// variability/cnn_step_ms.csv, processes with one GPU; noise_within:
// variability/bytedance_microbatch_ms.csv.
func production(c *Conditions) {
	c.Bias, c.Noise = 0.018, Spread{Median: 0.009, Sigma: 0.29}
	c.Drift = Drift{SD: 0.037, Rounds: 26, SlowSD: 0.031, SlowRounds: 460}
	c.Spikes = Spikes{Rate: 0.0042, Least: 0.1, More: 0.058, Again: 0.28}
	c.Episodes = []Episode{{Rate: 0.00017, Rounds: 6.4, Excess: Spread{Median: 1.6, Sigma: 0.9}}}
	c.Job = Job{Noise: 0.68, Bias: 1.2, Spikes: 1.1, Episodes: 1.5}
	c.Straggler = Straggler{Chance: 0.3, Excess: Spread{Median: 3.3, Sigma: 1.3}, SD: 0.64, Rounds: 5}
	c.NoiseWithin = 1
}

var presets = map[string]func(*Conditions){
	"steady":       func(*Conditions) {},
	"drift":        func(c *Conditions) { c.Drift = Drift{SD: 0.046, Rounds: 45} },
	"interference": func(c *Conditions) { c.Episodes = []Episode{{Rate: 0.002, Rounds: 200, Excess: gpuSharing}} },
	"bursts": func(c *Conditions) {
		c.Episodes = []Episode{{Rate: 0.02, Rounds: 10, Excess: Spread{Median: 1.3, Sigma: 0.7}}}
	},
	"colocated": func(c *Conditions) {
		c.Episodes = []Episode{{Rate: 0.0003, Rounds: 1000, Excess: gpuSharing, AtStart: 0.3}}
	},
	"powercap": func(c *Conditions) {
		c.Episodes = []Episode{{Rate: 0.001, Rounds: 500, Excess: Spread{Median: 0.12, Sigma: 1.4}, AtStart: 0.2}}
	},
	"failures":   func(c *Conditions) { c.Failures = Failures{Rate: 0.001, Rounds: 50, Silent: 0.3} },
	"joins":      func(c *Conditions) { c.Joins = Joins{Share: 0.25, Rounds: 200} },
	"production": production,
	"racks": func(c *Conditions) {
		c.Racks = Racks{Size: 4, Episode: Episode{Rate: 0.003, Rounds: 100, Excess: Spread{Median: 0.5, Sigma: 0.5}}}
	},
	"diurnal":         func(c *Conditions) { c.Diurnal = Diurnal{Amplitude: 0.2, Rounds: 200} },
	"creep":           func(c *Conditions) { c.Creep = Creep{Share: 0.25, Rounds: 200, Most: 3} },
	"bimodal":         func(c *Conditions) { c.Modes = Modes{Share: 0.25, Excess: 0.5, Rounds: 20} },
	"wrong-profile":   func(c *Conditions) { c.Wrong = Wrong{Share: 0.25, Factor: 2} },
	"skewed-clocks":   func(c *Conditions) { c.Clocks = Clocks{SD: 1} },
	"periodic":        patterns(periodic),
	"saves":           patterns(saves),
	"cascade":         patterns(cascade),
	"thermal":         patterns(thermal),
	"announced":       patterns(announced),
	"hopping":         patterns(hopping),
	"announced-saves": patterns(announcedSaves),
	"mixture": func(c *Conditions) {
		patterns(periodic, saves, cascade, thermal, announced, hopping)(c)
		c.Turns = Spread{100, 0.3}
	},
}

// Presets lists the names that Preset knows, in the order of the documentation.
func Presets() []string {
	return []string{
		"steady", "drift", "interference", "bursts", "colocated", "powercap", "failures", "joins", "production",
		"racks", "diurnal", "creep", "bimodal", "wrong-profile", "skewed-clocks",
		"periodic", "saves", "cascade", "thermal", "announced", "hopping", "mixture", "announced-saves",
	}
}

// ErrPreset is the error for the name of an unknown preset.
var ErrPreset = badinput.New("cluster: unknown conditions")

// Preset returns the named conditions.
func Preset(name string) (Conditions, error) {
	apply, ok := presets[name]
	if !ok {
		return Conditions{}, fmt.Errorf("%w %q; known: %s", ErrPreset, name, strings.Join(Presets(), ", "))
	}
	c := base()
	apply(&c)
	return c, nil
}

// Validate reports every value out of range, with the path of its field.
func (c *Conditions) Validate() error {
	var f badinput.Faults
	c.check(&f)
	return f.Err()
}

// The bounds lie far beyond anything measured, and keep the simulator's clock from overflowing.
const (
	maxSD     = 3   // of a logarithm: a factor of 20
	maxSpike  = 100 // relative
	maxRounds = 1e9
)

func (c *Conditions) check(f *badinput.Faults) {
	within := f.Within
	within("bias", c.Bias, 0, maxSD)
	within("noise.median", c.Noise.Median, 0, maxMedian)
	within("noise.sigma", c.Noise.Sigma, 0, maxSD)
	within("spikes.rate", c.Spikes.Rate, 0, 1)
	within("spikes.least", c.Spikes.Least, 0, maxSpike)
	within("spikes.more", c.Spikes.More, 0, maxSpike)
	within("spikes.again", c.Spikes.Again, 0, 1)
	c.Drift.check("drift.", f)
	for i := range c.Episodes {
		c.Episodes[i].check(fmt.Sprintf("episodes[%d]", i), f)
	}
	within("failures.rate", c.Failures.Rate, 0, 1)
	within("failures.silent", c.Failures.Silent, 0, 1)
	if c.Failures.Rate > 0 || c.Failures.Rounds != 0 {
		within("failures.rounds", c.Failures.Rounds, 1, maxRounds)
	}
	within("joins.share", c.Joins.Share, 0, 1)
	within("joins.rounds", float64(c.Joins.Rounds), 0, maxRounds)
	if c.Scale != (NoiseScale{}) {
		within("noise_scale.start", c.Scale.Start, 0.001, maxRounds)
		within("noise_scale.end", c.Scale.End, 0.001, maxRounds)
		within("noise_scale.rounds", c.Scale.Rounds, 1, maxRounds)
		within("noise_scale.norms", c.Scale.Norms, 0, 1)
	}
	within("noise_within", c.NoiseWithin, 0, 1)
	within("job.noise", c.Job.Noise, 0, maxSD)
	within("job.bias", c.Job.Bias, 0, maxSD)
	within("job.spikes", c.Job.Spikes, 0, maxSD)
	within("job.episodes", c.Job.Episodes, 0, maxSD)
	c.Straggler.check("straggler.", f)
	c.Stress.check(f)
	c.checkPatterns(f)
	if r := &c.Replay; *r != (trace.Replay{}) {
		if r.File == "" {
			f.Add("replay.file", "missing; name a CSV file with a row for each worker and round")
		}
		within("replay.pace", r.Rate(), trace.LeastPace, trace.MostPace)
		within("replay.scale", r.Exponent(), trace.LeastScale, trace.MostScale)
	}
}

func (d *Drift) check(prefix string, f *badinput.Faults) {
	f.Within(prefix+"sd", d.SD, 0, maxSD)
	if d.SD > 0 || d.Rounds != 0 {
		f.Within(prefix+"rounds", d.Rounds, 1, maxRounds)
	}
	f.Within(prefix+"slow_sd", d.SlowSD, 0, maxSD)
	if d.SlowSD > 0 || d.SlowRounds != 0 {
		f.Within(prefix+"slow_rounds", d.SlowRounds, 1, maxRounds)
	}
}

func (s *Straggler) check(prefix string, f *badinput.Faults) {
	f.Within(prefix+"chance", s.Chance, 0, 1)
	f.Within(prefix+"excess.median", s.Excess.Median, 0, maxFactor-1)
	f.Within(prefix+"excess.sigma", s.Excess.Sigma, 0, maxSD)
	f.Within(prefix+"sd", s.SD, 0, maxSD)
	if s.SD > 0 || s.Rounds != 0 {
		f.Within(prefix+"rounds", s.Rounds, 1, maxRounds)
	}
}

func (e *Episode) check(path string, f *badinput.Faults) {
	f.Within(path+".rate", e.Rate, 0, 1)
	f.Within(path+".rounds", e.Rounds, 1, maxRounds)
	f.Within(path+".excess.median", e.Excess.Median, 0, maxExcess)
	f.Within(path+".excess.sigma", e.Excess.Sigma, 0, maxSD)
	f.Within(path+".at_start", e.AtStart, 0, 1)
}
