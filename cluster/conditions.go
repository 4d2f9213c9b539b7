package cluster

import (
	"fmt"
	"math"
	"strings"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Conditions describes how the nodes of a cluster depart from their profiles, round
// by round. The zero value is a cluster that keeps to its profiles exactly. Presets
// are fitted to measurements, but for Stress; docs/reference/formats/cluster.md has the table with
// the file behind each number, experiments/fit-conditions makes it.
type Conditions struct {
	Bias     float64    `yaml:"bias,omitempty" json:"bias"`         // sd over nodes of the log of the constant departure from the profile, 0..3
	Noise    Spread     `yaml:"noise,omitempty" json:"noise"`       // over nodes: relative sd of one round's time
	Spikes   Spikes     `yaml:"spikes,omitempty" json:"spikes"`     // isolated slow rounds of a node
	Drift    Drift      `yaml:"drift,omitempty" json:"drift"`       // slow wandering of a node's speed
	Episodes []Episode  `yaml:"episodes,omitempty" json:"episodes"` // spells of slowness
	Failures Failures   `yaml:"failures,omitempty" json:"failures"` // nodes that fail and return
	Joins    Joins      `yaml:"joins,omitempty" json:"joins"`       // nodes that come later
	Scale    NoiseScale `yaml:"noise_scale,omitempty" json:"noise_scale"`
	Stress   `yaml:",inline"`
}

// Spread is a log-normal distribution: its median and the sd of its logarithm.
type Spread struct {
	Median float64 `yaml:"median,omitempty" json:"median"` // noise 0..0.5, excess 0..8; zero switches the thing off
	Sigma  float64 `yaml:"sigma,omitempty" json:"sigma"`   // 0..3
}

// Spikes are single rounds that take longer by Least plus an exponential of mean More.
type Spikes struct {
	Rate  float64 `yaml:"rate,omitempty" json:"rate"`   // per node and round, 0..1
	Least float64 `yaml:"least,omitempty" json:"least"` // relative, 0..100
	More  float64 `yaml:"more,omitempty" json:"more"`   // relative, 0..100
}

// Drift is an Ornstein-Uhlenbeck process of the log slowdown.
type Drift struct {
	SD     float64 `yaml:"sd,omitempty" json:"sd"`         // stationary, 0..3
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
	Start  float64 `yaml:"start,omitempty" json:"start"`   // 0.001..1e9; all three zero: statistical efficiency is 1
	End    float64 `yaml:"end,omitempty" json:"end"`       // 0.001..1e9
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // global batches from Start to End, 1..1e9
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

// draw maps a standard normal number to the distribution.
func (s Spread) draw(z float64) float64 { return s.Median * math.Exp(s.Sigma*z) }

// DrawNoise is a node's noise deviation from a standard normal number.
func (c *Conditions) DrawNoise(z float64) float64 {
	if c.Noise.Median == 0 {
		return 0
	}
	return min(max(c.Noise.draw(z), minNoise), max(maxNoise, c.Noise.Median))
}

// DrawSlowdown is an episode's slowdown from a standard normal number.
func (e *Episode) DrawSlowdown(z float64) float64 { return 1 + min(e.Excess.draw(z), maxExcess) }

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
	"failures": func(c *Conditions) { c.Failures = Failures{Rate: 0.001, Rounds: 50, Silent: 0.3} },
	"joins":    func(c *Conditions) { c.Joins = Joins{Share: 0.25, Rounds: 200} },
	"racks": func(c *Conditions) {
		c.Racks = Racks{Size: 4, Episode: Episode{Rate: 0.003, Rounds: 100, Excess: Spread{Median: 0.5, Sigma: 0.5}}}
	},
	"diurnal":       func(c *Conditions) { c.Diurnal = Diurnal{Amplitude: 0.2, Rounds: 200} },
	"creep":         func(c *Conditions) { c.Creep = Creep{Share: 0.25, Rounds: 200, Most: 3} },
	"bimodal":       func(c *Conditions) { c.Modes = Modes{Share: 0.25, Excess: 0.5, Rounds: 20} },
	"wrong-profile": func(c *Conditions) { c.Wrong = Wrong{Share: 0.25, Factor: 2} },
	"skewed-clocks": func(c *Conditions) { c.Clocks = Clocks{SD: 1} },
}

// Presets lists the names that Preset knows, in the order of the documentation.
func Presets() []string {
	return []string{
		"steady", "drift", "interference", "bursts", "colocated", "powercap", "failures", "joins",
		"racks", "diurnal", "creep", "bimodal", "wrong-profile", "skewed-clocks",
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
	var p problems
	c.check("", &p)
	return p.join()
}

// Bounds keep a mistaken number from turning into a clock that runs over: far beyond
// anything measured, they hold every product of the simulator finite.
const (
	maxSD     = 3   // of a logarithm: a factor of 20
	maxSpike  = 100 // relative
	maxRounds = 1e9
)

func (c *Conditions) check(prefix string, p *problems) {
	within := func(path string, v, least, most float64) { p.within(prefix+path, v, least, most) }
	within("bias", c.Bias, 0, maxSD)
	within("noise.median", c.Noise.Median, 0, maxMedian)
	within("noise.sigma", c.Noise.Sigma, 0, maxSD)
	within("spikes.rate", c.Spikes.Rate, 0, 1)
	within("spikes.least", c.Spikes.Least, 0, maxSpike)
	within("spikes.more", c.Spikes.More, 0, maxSpike)
	within("drift.sd", c.Drift.SD, 0, maxSD)
	if c.Drift.SD > 0 || c.Drift.Rounds != 0 {
		within("drift.rounds", c.Drift.Rounds, 1, maxRounds)
	}
	for i := range c.Episodes {
		c.Episodes[i].check(fmt.Sprintf("%sepisodes[%d]", prefix, i), p)
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
	}
	c.Stress.check(prefix, p)
}

func (e *Episode) check(path string, p *problems) {
	p.within(path+".rate", e.Rate, 0, 1)
	p.within(path+".rounds", e.Rounds, 1, maxRounds)
	p.within(path+".excess.median", e.Excess.Median, 0, maxExcess)
	p.within(path+".excess.sigma", e.Excess.Sigma, 0, maxSD)
	p.within(path+".at_start", e.AtStart, 0, 1)
}
