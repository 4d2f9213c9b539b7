package evaluation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/badinput"
	"evenkeel/internal/parallel"
	"evenkeel/internal/stats"
)

// Case is a cluster that policies are compared on.
type Case struct {
	Name    string
	Cluster *cluster.Cluster
	Weights [env.Objectives]float64
}

// Config says what to compare.
type Config struct {
	Cases     []Case
	Scenarios []Scenario
	Policies  []Spec
	Trained   *agent.Trained // for the policy ddqn
	Seeds     int            // judged on seeds 0 to Seeds-1
	TuneSeeds int            // hyperparameters are tuned on as many others; zero: 10
	Rounds    int            // per run
	// HoldBatch is how far the mean samples of a round may depart from the global batch, as a
	// share of it, without a penalty in tuning: each percent beyond costs ten percent of goodput.
	// 0: no penalty.
	HoldBatch float64
	// Known are hyperparameters that an earlier comparison found, by policy, cluster and scenario; they are not tuned
	// again. nil: everything is tuned.
	Known      map[Cell]string
	Clock      func() time.Time
	Progressed func(done, total int) // called after every run, by one goroutine at a time; may be nil
}

// Ratios returns the progress of each seed. Progress is their mean.
func (r *Result) Ratios() []float64 { return r.ratios }

// Scenario is a set of conditions with its name.
type Scenario struct {
	Name       string
	Conditions cluster.Conditions
}

// Result is one line of a comparison.
type Result struct {
	Cluster  string  `json:"cluster"`
	Scenario string  `json:"scenario"`
	Policy   string  `json:"policy"`
	Nodes    int     `json:"nodes"`
	Seeds    int     `json:"seeds"`
	Rounds   int     `json:"rounds"`
	Knobs    string  `json:"knobs,omitempty"` // hyperparameters as tuned for this cluster and scenario
	Bound    bool    `json:"bound,omitempty"`
	Ends     string  `json:"ends"`     // when its rounds end: "all in", "quorum", "deadline"; "mixed" if clusters differ
	Progress float64 `json:"progress"` // mean over seeds of goodput / the state oracle's
	Low      float64 `json:"low"`      // 95% bootstrap interval of progress
	High     float64 `json:"high"`
	Costs
	Hindsight float64 `json:"hindsight"` // progress over that of the oracle that knows the round's noise
	Fallback  float64 `json:"fallback"`  // share of the agent's decisions that the model made (Agent.Fallbacks)
	P50       float64 `json:"decision_us_p50"`
	P99       float64 `json:"decision_us_p99"`
	// Gain is the first policy's progress minus this one's, over the same seeds.
	Gain stats.Interval `json:"gain"`

	ratios []float64 // per seed
}

// tuneOffset separates the seeds of tuning from those of judging.
const tuneOffset = 1 << 32

// Compare runs every policy on every case, scenario and seed. Policies with
// hyperparameters are tuned before, for each case and scenario, on other seeds. Runs of one
// seed face the same cluster, so differences are paired. Results are ordered by case,
// scenario and policy; with several cases, results over all of them (cluster "all") follow.
// If ctx is done Compare returns its error with the results of the finished cells.
func Compare(ctx context.Context, config Config) ([]Result, error) {
	if config.Seeds < 1 || config.Rounds < 1 {
		return nil, badinput.Errorf("evaluation: %d seeds of %d rounds; at least one of each is needed", config.Seeds, config.Rounds)
	}
	config.TuneSeeds = cmp.Or(config.TuneSeeds, 10)
	c := &comparison{config: config}
	for range config.Cases {
		for range config.Scenarios {
			c.total += 2 * config.Seeds // the oracles' runs
			for _, p := range config.Policies {
				if p.Points() > 1 {
					c.total += p.mostTried() * config.TuneSeeds
				}
				if p.Name != "oracle" && p.Name != "hindsight" {
					c.total += len(p.judged(0)) * config.Seeds
				}
			}
		}
	}
	var results []Result
	for _, cs := range config.Cases {
		for _, sc := range config.Scenarios {
			lines, err := c.cell(ctx, cs, sc)
			if err != nil {
				return results, fmt.Errorf("evaluation: %s, %s: %w", cs.Name, sc.Name, err)
			}
			results = append(results, lines...)
		}
	}
	if len(config.Cases) > 1 {
		results = append(results, pool(results, config)...)
	}
	return results, nil
}

// comparison is Compare at work.
type comparison struct {
	config      Config
	mu          sync.Mutex
	done, total int
}

// cell compares all policies on one case and scenario.
func (c *comparison) cell(ctx context.Context, cs Case, sc Scenario) ([]Result, error) {
	oracle := bound("oracle", "", baseline.Oracle{})
	base, err := c.runs(ctx, cs, sc, &oracle, []int{0}, 0, c.config.Seeds)
	if err != nil {
		return nil, err
	}
	for seed, r := range base[0] {
		if !(r.score.Goodput > 0) {
			return nil, fmt.Errorf("seed %d: no sample was accepted in %d rounds, even by the oracle; there is nothing to compare", seed, c.config.Rounds)
		}
	}
	hindsight := bound("hindsight", "", baseline.Oracle{Noise: true})
	past, err := c.runs(ctx, cs, sc, &hindsight, []int{0}, 0, c.config.Seeds)
	if err != nil {
		return nil, err
	}
	most := 0.0
	for seed := range past[0] {
		most += past[0][seed].score.Goodput / base[0][seed].score.Goodput / float64(c.config.Seeds)
	}
	var lines []Result
	tuned := map[string]int{}
	for k := range c.config.Policies {
		p := &c.config.Policies[k]
		point, err := c.tuneOnce(ctx, cs, sc, p, tuned)
		if err != nil {
			return nil, err
		}
		runs := base
		switch p.Name {
		case oracle.Name:
		case hindsight.Name:
			runs = past
		default:
			if runs, err = c.runs(ctx, cs, sc, p, p.judged(point), 0, c.config.Seeds); err != nil {
				return nil, err
			}
		}
		r := Result{Cluster: cs.Name, Scenario: sc.Name, Policy: p.Name, Nodes: len(cs.Cluster.Nodes), Seeds: c.config.Seeds, Rounds: c.config.Rounds, Bound: p.Bound, Ends: p.ends(cs.Cluster)}
		if len(p.Hyperparameters) > 0 {
			fixed := Spec{Hyperparameters: p.Hyperparameters[p.Hindsight:]}
			r.Knobs = fixed.Text(point % fixed.Points())
		}
		r.summarize(runs, base[0])
		r.Hindsight = r.Progress / most
		lines = append(lines, r)
	}
	for k := range lines {
		lines[k].Gain = stats.Bootstrap([][]float64{differences(lines[0].ratios, lines[k].ratios)})
	}
	return lines, nil
}

// tuneOnce returns the point of p's grid to judge: the one in tuned, by the name of p or of
// the policy that it is Like, or else the result of tuning, which it adds to tuned.
func (c *comparison) tuneOnce(ctx context.Context, cs Case, sc Scenario, p *Spec, tuned map[string]int) (int, error) {
	like := cmp.Or(p.Like, p.Name)
	if point, known := tuned[like]; known {
		c.skip(p.mostTried() * c.config.TuneSeeds)
		return point, nil
	}
	if p.Points() == 1 {
		return 0, nil
	}
	point := p.point(c.config.Known[Cell{p.Name, cs.Name, sc.Name}])
	if point < 0 {
		var err error
		if point, err = c.tune(ctx, cs, sc, p); err != nil {
			return 0, err
		}
	} else {
		c.skip(p.mostTried() * c.config.TuneSeeds)
	}
	tuned[like] = point
	return point, nil
}

// summarize fills in the result of a policy's runs, of several points by seed, relative to
// the state oracle's runs. On each seed the best point counts.
func (r *Result) summarize(runs [][]run, oracle []run) {
	var times []time.Duration
	for i := range runs[0] {
		run := runs[0][i]
		for _, other := range runs[1:] {
			if other[i].score.Goodput > run.score.Goodput {
				run = other[i]
			}
		}
		r.ratios = append(r.ratios, run.score.Goodput/oracle[i].score.Goodput)
		r.Costs.add(run.score.Costs, len(runs[0]))
		r.Fallback += run.fallback / float64(len(runs[0]))
		times = append(times, run.times...)
	}
	slices.Sort(times)
	if len(times) > 0 {
		r.P50 = float64(times[len(times)/2]) / 1e3
		r.P99 = float64(times[len(times)*99/100]) / 1e3
	}
	i := stats.Bootstrap([][]float64{r.ratios})
	r.Progress, r.Low, r.High = i.Mean, i.Low, i.High
}

// run is the outcome of one run of a policy.
type run struct {
	score    Score
	times    []time.Duration // of decisions
	fallback float64         // share of the agent's decisions left to the model
}

// runs plays a policy at each of the points on each seed, on all processors.
func (c *comparison) runs(ctx context.Context, cs Case, sc Scenario, p *Spec, points []int, offset uint64, seeds int) ([][]run, error) {
	out := make([][]run, len(points))
	for k := range out {
		out[k] = make([]run, seeds)
	}
	return out, parallel.Each(len(points)*seeds, func(t int) (err error) {
		k, seed := t/seeds, t%seeds
		out[k][seed], err = c.play(ctx, cs, sc, p, points[k], offset+uint64(seed))
		return err
	})
}

func (c *comparison) play(ctx context.Context, cs Case, sc Scenario, p *Spec, point int, seed uint64) (run, error) {
	var r run
	on := cs.Cluster.Own()
	if !p.Deadline {
		on.Collect.AutoDeadline = false
	}
	s := sim.New(on, sc.Conditions, seed)
	policy := p.New(on, s, c.config.Trained, cs.Weights, point)
	var each func(agent.Round)
	if c.config.Clock != nil && seed < tuneOffset {
		each = func(round agent.Round) { r.times = append(r.times, round.Decision) }
	}
	score, err := Play(ctx, on, s, policy, c.config.Rounds, c.config.Clock, each)
	r.score = score
	if a, ok := policy.(*agent.Agent); ok {
		r.fallback = float64(a.Fallbacks) / float64(max(a.Decisions, 1))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	if c.config.Progressed != nil && err == nil {
		c.config.Progressed(c.done, c.total)
	}
	return r, err
}

// pool returns, for every scenario and policy, the result over all cases: the mean over
// cases, with intervals from a bootstrap that resamples seeds within each case.
func pool(lines []Result, config Config) []Result {
	var pooled []Result
	for _, sc := range config.Scenarios {
		var first [][]float64
		for _, p := range config.Policies {
			all := Result{Cluster: "all", Scenario: sc.Name, Policy: p.Name, Seeds: config.Seeds, Rounds: config.Rounds, Bound: p.Bound}
			var ratios, gains [][]float64
			energy, known := 0.0, 0.0 // known: cases with some node's power
			for _, l := range lines {
				if l.Scenario != sc.Name || l.Policy != p.Name {
					continue
				}
				if all.Ends = cmp.Or(all.Ends, l.Ends); all.Ends != l.Ends {
					all.Ends = "mixed"
				}
				all.Nodes += l.Nodes
				all.Costs.add(l.Costs, len(config.Cases))
				all.Fallback += l.Fallback / float64(len(config.Cases))
				all.Hindsight += l.Hindsight / float64(len(config.Cases))
				if l.Energy > 0 {
					energy += l.Energy
					known++
				}
				all.P50, all.P99 = max(all.P50, l.P50), max(all.P99, l.P99)
				ratios = append(ratios, l.ratios)
			}
			if first == nil {
				first = ratios
			}
			for k := range ratios {
				gains = append(gains, differences(first[k], ratios[k]))
			}
			all.Energy = energy / max(known, 1)
			i := stats.Bootstrap(ratios)
			all.Progress, all.Low, all.High, all.Gain = i.Mean, i.Low, i.High, stats.Bootstrap(gains)
			pooled = append(pooled, all)
		}
	}
	return pooled
}

func differences(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}
