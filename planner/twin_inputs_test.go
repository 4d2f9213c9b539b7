package planner_test

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// twinCase is a case, and how often it took the ways that the twin counts.
type twinCase struct {
	Cluster twinCluster
	Layers  []twinLayer
	Plan    twinPlan
	Options twinOptions

	fixed   bool // runs have fixed bytes
	spreads bool // layers and runs say what plans may spread
	selects bool // runs say what selective recomputation saves
	seen    map[string]int
}

type twinLevel struct {
	Latency float64
	Start   float64
	Rates   []twinRate // by rising size; none: no bandwidth; one: its size means nothing
	Secure  bool
}

type twinRate struct{ Size, Bandwidth float64 }

type twinCluster struct {
	Classes  []twinClass
	Switches []twinSwitch
}

type twinClass struct {
	Device            string
	Count, PerMachine int
	Memory, Slow      float64
	Inside, Link      twinLevel
	Switch            int // -1: none
}

type twinSwitch struct {
	Level twinLevel
	Up    int // -1: none
}

type twinLayer struct {
	Parameters, Output float64
	Tied               float64               // of the last: parameters that the first has, too
	Context            float64               // bytes of a sample that go around
	Experts            int                   // 0: none
	ExpertParameters   float64               // of all experts
	ExpertBytes        float64               // of a sample that go to experts
	Runs               map[twinKey][]twinRun // by rising micro-batch
}

// twinKey is where a layer was measured: on so many devices, of so many machines.
type twinKey struct {
	Class, Tensor, Machines int
}

// keys are where the layer was measured, in order.
func (l *twinLayer) keys() []twinKey {
	return slices.SortedFunc(maps.Keys(l.Runs), func(a, b twinKey) int {
		return cmp.Or(a.Class-b.Class, a.Tensor-b.Tensor, a.Machines-b.Machines)
	})
}

type twinRun struct {
	MicroBatch                int
	Forward, Backward, Update float64 // Backward -1: left out
	Activation, Fixed         float64
	Core, Freed               float64 // what selective recomputation does again, and frees
	Sequence                  float64 // what sequence parallelism frees
}

type twinPlan struct {
	GlobalBatch, MicroBatch int
	Context, Experts        int // 0: 1
	Stages                  []twinStage
	Schedule                string // "": 1f1b
	Chunks                  int    // of interleaved
	Warmup                  []int  // of h-1f1b
	Overlap                 bool   // transfers beside computing
}

type twinStage struct {
	From, To   int
	Groups     []twinGroup
	Strategies []twinStrategy // one for each layer

	alone bool // it is the only stage
}

type twinGroup struct {
	Class, First, Count, Tensor int
	Shares                      []int
}

type twinStrategy struct {
	Tensor     int
	Sharding   string
	Checkpoint bool
	Selective  bool
}

type twinOptions struct {
	Memory, Reserve        float64
	Compute, Communication float64
	Off                    bool
	DeepSpeed              bool    // it exchanges late
	Sequence               bool    // tensor degrees are sequence-parallel
	W, G, O                float64 // bytes of a parameter: weights, gradients, optimizer

	// The calibration: factors, and what devices hold beside the model.
	Devices                                map[string]float64
	Links, Activations, Gradients, Working float64
	Beside, BesideShare, Margin            float64
}

func (o *twinOptions) compute(device string) float64 {
	if f, ok := o.Devices[device]; ok {
		return f
	}
	return 1
}

func (o *twinOptions) beside(memory float64) float64 {
	if o.BesideShare > 0 && o.Beside > o.BesideShare*memory {
		return o.BesideShare * memory
	}
	return o.Beside
}

// time is the time of a message, as calibrated.
func (c *twinCase) time(path []twinLevel, x float64) float64 {
	return c.Options.Links * twinTime(path, x)
}

// twinTime is the time of a message over a path of levels.
func twinTime(path []twinLevel, x float64) float64 {
	if x == 0 {
		return 0
	}
	latency, least, secure := 0.0, math.Inf(1), 0.0
	for _, l := range path {
		latency += l.Latency
		least = min(least, l.at(x))
		if l.Secure {
			secure = 2 * x / 4.7e9
		}
	}
	return latency + x/least + secure
}

func (l twinLevel) at(x float64) float64 {
	if len(l.Rates) == 0 {
		return math.Inf(1)
	}
	for i, r := range l.Rates {
		if x > r.Size {
			continue
		}
		if i == 0 {
			return r.Bandwidth
		}
		before := l.Rates[i-1]
		return before.Bandwidth + (r.Bandwidth-before.Bandwidth)*math.Log(x/before.Size)/math.Log(r.Size/before.Size)
	}
	return l.Rates[len(l.Rates)-1].Bandwidth
}

func (c *twinCluster) inside(class int) []twinLevel { return []twinLevel{c.Classes[class].Inside} }

func (c *twinCluster) between(a, b int) []twinLevel {
	path := []twinLevel{c.Classes[a].Link, c.Classes[b].Link}
	var above []int // of a
	for s := c.Classes[a].Switch; s >= 0; s = c.Switches[s].Up {
		above = append(above, s)
	}
	for s := c.Classes[b].Switch; s >= 0; s = c.Switches[s].Up {
		path = append(path, c.Switches[s].Level)
		for i, o := range above {
			if o == s {
				for _, s := range above[:i] {
					path = append(path, c.Switches[s].Level)
				}
				return path
			}
		}
	}
	return path[:2] // without switches
}

// place is how many machines a group lies in, and the most of its devices that lie in one of them.
func (c *twinCluster) place(g *twinGroup) (machines, most int) {
	devices := map[int]int{}
	for d := g.First; d < g.First+g.Count; d++ {
		devices[d/c.Classes[g.Class].PerMachine]++
	}
	return len(devices), slices.Max(slices.Collect(maps.Values(devices)))
}

// twinCorrect fills in what a profile leaves out, and replaces times that fall while the micro-batch rises; the core's with the forward time's.
func twinCorrect(measured []twinRun) []twinRun {
	runs := slices.Clone(measured)
	for i := range runs {
		if runs[i].Backward <= 0 {
			runs[i].Backward = 2 * runs[i].Forward
		}
	}
	for _, of := range []func(r *twinRun) *float64{func(r *twinRun) *float64 { return &r.Forward }, func(r *twinRun) *float64 { return &r.Backward }} {
		for i := len(runs) - 2; i >= 0; i-- {
			at, next := &runs[i], &runs[i+1]
			if *of(at) <= *of(next) {
				continue
			}
			if i+2 == len(runs) {
				*of(at) = *of(next)
				continue
			}
			second := &runs[i+2]
			slope := (*of(second) - *of(next)) / float64(second.MicroBatch-next.MicroBatch)
			line := *of(next) - slope*float64(next.MicroBatch-at.MicroBatch)
			*of(at) = max(line, *of(next)*float64(at.MicroBatch)/float64(next.MicroBatch))
		}
	}
	for i := range runs {
		if was := measured[i].Forward; runs[i].Forward != was {
			runs[i].Core *= runs[i].Forward / was
		}
	}
	return runs
}

// run is what a layer takes of k samples; false above the largest micro-batch.
func (l *twinLayer) run(key twinKey, k int) (twinRun, bool) {
	var before *twinRun
	for _, r := range twinCorrect(l.Runs[key]) {
		if k <= r.MicroBatch {
			if k == r.MicroBatch || before == nil {
				return r, true
			}
			part := float64(k-before.MicroBatch) / float64(r.MicroBatch-before.MicroBatch)
			between := func(a, b float64) float64 { return a + part*(b-a) }
			return twinRun{k, between(before.Forward, r.Forward), between(before.Backward, r.Backward), between(before.Update, r.Update), max(before.Activation, r.Activation), max(before.Fixed, r.Fixed), between(before.Core, r.Core), min(before.Freed, r.Freed), min(before.Sequence, r.Sequence)}, true
		}
		before = &r
	}
	return twinRun{}, false
}
