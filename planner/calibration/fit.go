package calibration

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"evenkeel/planner"
	"evenkeel/planner/costmodel"
)

// contradicts is the relative error beyond which a measured plan contradicts the other plans.
const contradicts = 0.4

// weight is the cost, as mean relative error, of doubling a factor. So a factor that no plan depends on stays as it is.
const weight = 0.005

// calibrate finds the calibration with the least mean relative error over measured plans: for times, a factor on each device's computing and one
// on links; for memory, a factor on activations, one on buffers, and the bytes that the model does not use. Errors are not squared, so that a few
// outliers do not distort the fit; outliers are named in an error.
func calibrate(rows []Measured) (costmodel.Calibration, error) {
	c := costmodel.Uncalibrated()
	if len(rows) == 0 {
		return c, fmt.Errorf("%w: there are none", errMeasured)
	}
	var err error
	names, alone := devices(rows), devices(slices.DeleteFunc(slices.Clone(rows), func(m Measured) bool { return len(devices([]Measured{m})) > 1 }))
	times := func(x []float64) costmodel.Calibration { return withTimes(c, names, alone, x) }
	value := func(x []float64) float64 { return off(rows, times(x), seconds, &err) + weight*doubled(x) }
	// First one factor for all devices, then one for each device that was measured alone.
	apart := func(x []float64) []float64 { return append(slices.Clone(x), slices.Repeat(x[:1], len(alone))...) }
	x := least([][]float64{steps(0.5, 0.05), steps(3, 0.25)}, func(x []float64) float64 { return value(apart(x)) })
	c = times(descend(apart(x), value))
	if slices.ContainsFunc(rows, func(m Measured) bool { return m.Peak > 0 }) {
		bytes := contextOf(rows)
		memory := func(x []float64) costmodel.Calibration { // from logarithms: of activations, of the bytes that the model does not use, and of buffers
			m := c
			m.Activations, m.Gradients, m.Context, m.ContextShare, m.Working = c.Activations*math.Exp(x[0]), 1, bytes*math.Exp(x[1]), 0, math.Exp(x[2])
			return m
		}
		c = memory(least([][]float64{steps(0.5, 0.1), steps(1, 0.25), steps(2, 0.5)}, func(x []float64) float64 {
			return off(rows, memory(x), peak, &err) + weight*doubled(x)
		}))
	}
	if err != nil {
		return c, err
	}
	return c, judge(rows, &c)
}

// withTimes sets the factors on times from their logarithms: x[0] for devices that were never measured alone, x[1] for links, then one for each
// device that was measured alone.
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

// steps are the multiples of step from -most to most.
func steps(most, step float64) []float64 {
	var all []float64
	for i := -math.Round(most / step); i*step <= most; i++ {
		all = append(all, i*step)
	}
	return all
}

// devices are the names of the devices that plans use, sorted.
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

// contextOf is the start of the fit of the bytes that the model does not use: the default for the measured device with the least memory.
func contextOf(rows []Measured) float64 {
	c, bytes := costmodel.Uncalibrated(), math.Inf(1)
	for i, m := range rows {
		for _, d := range devices(rows[i : i+1]) {
			bytes = min(bytes, c.Context, c.ContextShare*m.Job.MemoryOf(d))
		}
	}
	return bytes
}

// doubled is the number of times that all factors together double or halve, given their logarithms.
func doubled(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Abs(v)
	}
	return sum / math.Ln2
}

// predict predicts a measured plan, also one that does not fit into memory.
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

// seconds and peak are the quotient of predicted and measured; 0: not measured.
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

// off is the mean relative error of a quantity over the plans for which it was measured.
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

// least searches the point with the least value, starting at the best point of a grid.
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

// descend steps along axes and diagonals while that lowers the value, and halves the step when no direction does.
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

// directions are both directions of each axis, and of the diagonals of each pair of axes.
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

// judge reports the plans that contradict the others, and sets the margin: the largest share by which measured memory exceeds the prediction.
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
