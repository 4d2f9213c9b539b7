package evaluation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"evenkeel/internal/badinput"
)

// Hyperparameter is one of a policy's hyperparameters, with the values that tuning tries.
type Hyperparameter struct {
	Name   string // precedes the value in texts; may be ""
	Values []string
	Start  int // the value that the search starts from
}

const (
	exhaustive = 60 // points of several hyperparameters up to which every one is tried
	sweeps     = 2  // over the hyperparameters of a larger grid
)

// Points is the size of the policy's grid, the product of its hyperparameters' values: 1
// without any. A point is an index below that.
func (p *Spec) Points() int {
	n := 1
	for _, a := range p.Hyperparameters {
		n *= len(a.Values)
	}
	return n
}

// Text describes a point of the grid.
func (p *Spec) Text(point int) string {
	var texts []string
	for a, v := range split(p.Hyperparameters, point) {
		text := p.Hyperparameters[a].Values[v]
		if name := p.Hyperparameters[a].Name; name != "" {
			text = name + " " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// split returns the values of a point, an index per hyperparameter; the last runs fastest.
func split(params []Hyperparameter, point int) []int {
	at := make([]int, len(params))
	for a := len(params) - 1; a >= 0; a-- {
		at[a] = point % len(params[a].Values)
		point /= len(params[a].Values)
	}
	return at
}

// join is the inverse of split.
func join(params []Hyperparameter, at []int) int {
	point := 0
	for a := range params {
		point = point*len(params[a].Values) + at[a]
	}
	return point
}

// block returns the points that differ from the given one only in the hyperparameters from
// first to end-1.
func block(params []Hyperparameter, point, first, end int) []int {
	at := split(params, point)
	points := []int{point}
	for a := first; a < end; a++ {
		var all []int
		for _, q := range points {
			copy(at, split(params, q))
			for v := range params[a].Values {
				at[a] = v
				all = append(all, join(params, at))
			}
		}
		points = all
	}
	return points
}

// whole reports whether tuning tries every point of the grid.
func (p *Spec) whole() bool { return len(p.Hyperparameters) < 2 || p.Points() <= exhaustive }

// mostTried is the most points that tuning tries.
func (p *Spec) mostTried() int {
	if p.whole() {
		return p.Points()
	}
	n := 1
	for _, a := range p.Hyperparameters {
		n += sweeps * (len(a.Values) - 1)
	}
	return n
}

// Tune returns the point of p's grid with the highest goodput on config.TuneSeeds seeds, from
// 2^32 on. If the grid is a product of several hyperparameters with more than 60 points, it is
// the best point of coordinate descent: from their starts, two sweeps set each in turn to its
// best value. Of config it reads only TuneSeeds, Rounds, Trained, HoldBatch and Progressed.
func Tune(ctx context.Context, config Config, cs Case, sc Scenario, p *Spec) (int, error) {
	config.TuneSeeds = cmp.Or(config.TuneSeeds, 10)
	c := &comparison{config: config, total: p.mostTried() * config.TuneSeeds}
	return c.tune(ctx, cs, sc, p)
}

func (c *comparison) tune(ctx context.Context, cs Case, sc Scenario, p *Spec) (int, error) {
	s := search{c: c, cs: cs, sc: sc, p: p, means: map[int]float64{}}
	point, err := 0, error(nil)
	if p.whole() {
		return s.best(ctx, block(p.Hyperparameters, 0, 0, len(p.Hyperparameters)))
	}
	for _, a := range p.Hyperparameters {
		point = point*len(a.Values) + a.Start
	}
	for step := 0; step < sweeps*len(p.Hyperparameters) && err == nil; step++ {
		a := step % len(p.Hyperparameters)
		point, err = s.best(ctx, block(p.Hyperparameters, point, a, a+1))
	}
	c.skip((p.mostTried() - len(s.means)) * c.config.TuneSeeds)
	return point, err
}

// skip subtracts runs that are not needed from the total.
func (c *comparison) skip(runs int) {
	c.mu.Lock()
	c.total -= runs
	c.mu.Unlock()
}

// search is the tuning of one policy.
type search struct {
	c         *comparison
	cs        Case
	sc        Scenario
	p         *Spec
	reference []run           // of the first point
	means     map[int]float64 // goodput over the reference's, summed over seeds
}

// best tries the points that were not tried yet and returns the best of those given; on ties,
// the first.
func (s *search) best(ctx context.Context, points []int) (int, error) {
	var untried []int
	for _, k := range points {
		if _, ok := s.means[k]; !ok {
			untried = append(untried, k)
		}
	}
	runs, err := s.c.runs(ctx, s.cs, s.sc, s.p, untried, tuneOffset, s.c.config.TuneSeeds)
	if err != nil {
		return 0, err
	}
	for i, k := range untried {
		if s.reference == nil {
			s.reference = runs[i]
		}
		for seed, r := range runs[i] {
			s.means[k] += r.score.Goodput / max(s.reference[seed].score.Goodput, 1e-300)
			if hold := s.c.config.HoldBatch; hold > 0 {
				s.means[k] -= 10 * max(math.Abs(r.score.SamplesMean-1)-hold, 0)
			}
		}
	}
	best := points[0]
	for _, k := range points[1:] {
		if s.means[k] > s.means[best] {
			best = k
		}
	}
	return best, nil
}

// Cell is what hyperparameters are tuned for.
type Cell struct{ Policy, Cluster, Scenario string }

type tunedFile struct {
	Version int         `json:"version"`
	Tuned   []tunedLine `json:"tuned"`
}

type tunedLine struct {
	Policy   string `json:"policy"`
	Cluster  string `json:"cluster"`
	Scenario string `json:"scenario"`
	Knobs    string `json:"knobs"` // the point of the grid, as evenkeel compare prints it
}

// Tuned returns the hyperparameters that tuning found as a file, a line for each policy that has some, in the order of the
// results.
func Tuned(results []Result) ([]byte, error) {
	file := tunedFile{Version: 1, Tuned: []tunedLine{}}
	for _, r := range results {
		if r.Knobs != "" {
			file.Tuned = append(file.Tuned, tunedLine{r.Policy, r.Cluster, r.Scenario, r.Knobs})
		}
	}
	text, err := json.MarshalIndent(file, "", " ")
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	return append(text, '\n'), nil
}

// ReadTuned is the inverse of Tuned, for Config.Known.
func ReadTuned(text []byte) (map[Cell]string, error) {
	var file tunedFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, badinput.Errorf("evaluation: hyperparameters: %v", err)
	}
	if file.Version != 1 {
		return nil, badinput.Errorf("evaluation: hyperparameters: version %d, this program reads version 1", file.Version)
	}
	known := map[Cell]string{}
	for _, l := range file.Tuned {
		known[Cell{l.Policy, l.Cluster, l.Scenario}] = l.Knobs
	}
	return known, nil
}

// point is the first point of the grid that a text describes, without the hyperparameters chosen in hindsight;
// -1: none.
func (p *Spec) point(text string) int {
	fixed := Spec{Hyperparameters: p.Hyperparameters[p.Hindsight:]}
	if text == "" {
		return -1
	}
	for point := range fixed.Points() {
		if fixed.Text(point) == text {
			return point
		}
	}
	return -1
}
