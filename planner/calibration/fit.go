package calibration

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/planner"
	"github.com/evenkeel/evenkeel/planner/costmodel"
)

// Limits of what measured plans may be apart.
const (
	repeated    = 0.1 // runs of one plan
	contradicts = 0.4 // a plan and what the others say of it
)

// weight is what a factor that doubles costs, in mean relative error: with nothing to go by, factors stay where they are.
const weight = 0.005

// calibrate finds the calibration with the least mean relative error over measured plans: of their times, a factor on each device's computing
// and one on links; of their memory, a factor on activations and one on buffers, and the bytes beside the model. Errors count as they
// are, not squared, so that a few odd measurements do not pull the others; those that remain far off are an error that names them.
func calibrate(rows []Measured) (costmodel.Calibration, error) {
	c := costmodel.Uncalibrated()
	if len(rows) == 0 {
		return c, fmt.Errorf("%w: there are none", errMeasured)
	}
	if err := agree(rows); err != nil {
		return c, err
	}
	var err error
	names, alone := devices(rows), devices(slices.DeleteFunc(slices.Clone(rows), func(m Measured) bool { return len(devices([]Measured{m})) > 1 }))
	times := func(x []float64) costmodel.Calibration { return withTimes(c, names, alone, x) }
	value := func(x []float64) float64 { return off(rows, times(x), seconds, &err) + weight*doubled(x) }
	// First as if all devices had one factor.
	apart := func(x []float64) []float64 { return append(slices.Clone(x), slices.Repeat(x[:1], len(alone))...) }
	x := least([][]float64{steps(0.5, 0.05), steps(3, 0.25)}, func(x []float64) float64 { return value(apart(x)) })
	c = times(descend(apart(x), value))
	if slices.ContainsFunc(rows, func(m Measured) bool { return m.Peak > 0 }) {
		bytes := contextOf(rows)
		memory := func(x []float64) costmodel.Calibration { return withMemory(c, bytes, x) }
		c = memory(least([][]float64{steps(0.5, 0.1), steps(1, 0.25), steps(2, 0.5)}, func(x []float64) float64 {
			return off(rows, memory(x), peak, &err) + weight*doubled(x)
		}))
	}
	if err != nil {
		return c, err
	}
	return c, judge(rows, &c)
}

// withTimes sets the factors of times: of devices that were measured with others, of links, and of each that was measured alone.
func withTimes(c costmodel.Calibration, names, alone []string, x []float64) costmodel.Calibration {
	c.Compute = map[string]float64{}
	for _, d := range names {
		c.Compute[d] = math.Exp(x[0])
		if i := slices.Index(alone, d); i >= 0 {
			c.Compute[d] = math.Exp(x[2+i])
		}
	}
	c.Links = math.Exp(x[1])
	return c
}

// steps are multiples of step up to most, of both signs.
func steps(most, step float64) []float64 {
	var all []float64
	for i := -math.Round(most / step); i*step <= most; i++ {
		all = append(all, i*step)
	}
	return all
}

func withMemory(c costmodel.Calibration, bytes float64, x []float64) costmodel.Calibration {
	base := costmodel.Uncalibrated()
	c.Activations, c.Context, c.ContextShare, c.Working = base.Activations*math.Exp(x[0]), bytes*math.Exp(x[1]), 0, math.Exp(x[2])
	return c
}

// devices are those that plans use, by name.
func devices(rows []Measured) []string {
	var all []string
	for _, m := range rows {
		for _, s := range m.Plan.Stages {
			for _, g := range s.Groups {
				all = append(all, g.Device)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// contextOf is where the bytes beside the model begin: what is assumed of the measured device with the least.
func contextOf(rows []Measured) float64 {
	c, bytes := costmodel.Uncalibrated(), math.Inf(1)
	for i, m := range rows {
		for _, d := range devices(rows[i : i+1]) {
			bytes = min(bytes, c.Context, c.ContextShare*m.Job.MemoryOf(d))
		}
	}
	return bytes
}

// doubled is how often factors double or halve, together, of their logarithms.
func doubled(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Abs(v)
	}
	return sum / math.Ln2
}

// predict predicts a measured plan; one that does not fit has a prediction too.
func predict(m *Measured, c costmodel.Calibration) (*planner.Prediction, error) {
	job, err := m.Job.Calibrated(c)
	if err != nil {
		return nil, err
	}
	p, err := job.Predict(m.Plan)
	if p == nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return p, nil
}

// seconds and peak are the quotients of prediction and measurement; 0: not measured.
func seconds(m *Measured, p *planner.Prediction) float64 { return p.Simulated / m.Seconds }

func peak(m *Measured, p *planner.Prediction) float64 {
	if m.Peak == 0 {
		return 0
	}
	return highest(p) / m.Peak
}

// highest is the largest predicted peak of a device, in bytes.
func highest(p *planner.Prediction) float64 {
	most := 0.0
	for _, s := range p.Stages {
		for _, u := range s.Memory {
			most = max(most, u.Peak())
		}
	}
	return most
}

// off is the mean relative error.
func off(rows []Measured, c costmodel.Calibration, quotient func(*Measured, *planner.Prediction) float64, failed *error) float64 {
	sum, n := 0.0, 0
	for i := range rows {
		p, err := predict(&rows[i], c)
		if err != nil {
			*failed = err
			return math.Inf(1)
		}
		if q := quotient(&rows[i], p); q > 0 {
			sum += math.Abs(math.Log(q))
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// least searches the point with the least value, from the best of a grid.
func least(grid [][]float64, value func([]float64) float64) []float64 {
	best, at, x := math.Inf(1), make([]float64, len(grid)), make([]float64, len(grid))
	var walk func(axis int)
	walk = func(axis int) {
		if axis == len(grid) {
			if v := value(x); v < best {
				best, at = v, slices.Clone(x)
			}
			return
		}
		for _, v := range grid[axis] {
			x[axis] = v
			walk(axis + 1)
		}
	}
	walk(0)
	return descend(at, value)
}

// descend steps along axes and diagonals, and halves the step where none helps.
func descend(at []float64, value func([]float64) float64) []float64 {
	best, x := value(at), make([]float64, len(at))
	directions := directions(len(at))
	for step := 0.5; step > 1e-3; {
		helped := false
		for _, d := range directions {
			for i := range x {
				x[i] = at[i] + step*d[i]
			}
			if v := value(x); v < best {
				best, at, helped = v, slices.Clone(x), true
			}
		}
		if !helped {
			step /= 2
		}
	}
	return at
}

// directions are forth and back along each axis and along the diagonals of each two.
func directions(n int) [][]float64 {
	var all [][]float64
	for i := range n {
		for _, a := range []float64{-1, 1} {
			d := make([]float64, n)
			d[i] = a
			all = append(all, d)
			for j := range i {
				for _, b := range []float64{-1, 1} {
					e := slices.Clone(d)
					e[j] = b
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// agree reports runs of one plan that differ.
func agree(rows []Measured) error {
	apart := func(a, b float64) bool { return a > 0 && b > 0 && math.Abs(math.Log(a/b)) > math.Log1p(repeated) }
	for i, a := range rows {
		for _, b := range rows[:i] {
			if !samePlan(a.Plan, b.Plan) || !a.Job.SameCluster(b.Job) || !apart(a.Seconds, b.Seconds) && !apart(a.Peak, b.Peak) {
				continue
			}
			memory := ""
			if a.Peak > 0 && b.Peak > 0 {
				memory = fmt.Sprintf(", %s and %s", costmodel.Bytes(b.Peak), costmodel.Bytes(a.Peak))
			}
			return fmt.Errorf("%w: %s and %s are runs of one plan, but took %.4g s and %.4g s%s; measure again, or leave one out",
				errMeasured, b.Name, a.Name, b.Seconds, a.Seconds, memory)
		}
	}
	return nil
}

func samePlan(a, b *planner.Plan) bool {
	x, y := *a, *b
	x.Predicted, y.Predicted = nil, nil
	one, err1 := x.Encode()
	other, err2 := y.Encode()
	return err1 == nil && err2 == nil && string(one) == string(other)
}

// judge names the plans that contradict the others, and sets the margin: how much more memory than predicted a plan took.
func judge(rows []Measured, c *costmodel.Calibration) error {
	var all []string
	for i := range rows {
		m := &rows[i]
		p, err := predict(m, *c)
		if err != nil {
			return err
		}
		if math.Abs(math.Log(seconds(m, p))) > math.Log1p(contradicts) {
			all = append(all, fmt.Sprintf("%s took %.4g s, where the others say %.4g s", m.Name, m.Seconds, p.Simulated))
		}
		if q := peak(m, p); q > 0 && math.Abs(math.Log(q)) > math.Log1p(contradicts) {
			all = append(all, fmt.Sprintf("%s took %s, where the others say %s", m.Name, costmodel.Bytes(m.Peak), costmodel.Bytes(highest(p))))
		} else if q > 0 {
			c.Margin = max(c.Margin, 1/q-1)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: plans contradict each other: %s; measure them again, or leave them out (peak_bytes may be empty)", errMeasured, strings.Join(all, "; "))
}
