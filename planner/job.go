package planner

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
)

// ErrOptions is wrapped by errors about options.
var ErrOptions = errors.New("invalid options")

// Options are the preset conditions and what a plan may use. The zero value of a field means its default.
type Options struct {
	GlobalBatches []int // samples of an iteration, at least one; of several the plan with the least time per sample is taken
	MicroBatches  []int // samples of a replica's micro-batch to try; default: all divisors of what the replicas leave
	Replicas      []int // replicas of a stage to try; default: all divisors of the global batch
	LeastStages   int   // default 1
	MostStages    int   // default: as many as there are layers

	Memory    float64    // share of a device's memory that a plan may fill, above 0, up to 1; default 1
	Reserve   float64    // bytes of a device that the plan leaves alone: the driver's, the allocator's
	Shardings []Sharding // default: all
	// Checkpoint says whether layers may be checkpointed: "auto" (default), "never", "always".
	Checkpoint string
	States     States
	// Overlap says how compute and communication slow each other down while both run.
	Overlap Overlap
	// Exact keeps every state of the search whatever it takes. Without it, more than 32 layers or 256 devices are searched
	// by their most promising states, and the bound says how much may be missed.
	Exact bool
}

// States are the bytes that training holds for each parameter.
type States struct{ Weights, Gradients, Optimizer float64 }

// Mixed is 16-bit weights and gradients with Adam's moments and a master copy in 32 bits; Full32 is all in 32 bits.
var (
	Mixed  = States{2, 2, 12}
	Full32 = States{4, 4, 8}
)

// Overlap is how many times longer compute and communication take while both run; Off: they do not run together.
type Overlap struct {
	Compute, Communication float64 // at least 1
	Off                    bool
}

// Together is the seconds until both compute and communication are done, begun at the same time: Galvatron's overlap
// with a slowdown for each.
func (o Overlap) Together(compute, communication float64) float64 {
	if o.Off {
		return compute + communication
	}
	if c, k := o.Compute*compute, o.Communication*communication; c <= k {
		return c + communication - c/o.Communication
	} else {
		return k + compute - k/o.Compute
	}
}

// Job is a model to be planned on a cluster.
type Job struct {
	Profile  *Profile
	Topology *cluster.Topology
	Options  Options
	alike    []int32 // the kind of each layer: layers of a kind cost the same
	kinds    int
	counts   [][]int   // layers of each kind before layer i
	same     [][]int32 // runs of layers with the same content have the same number, by first layer and length-1
	devices  []string  // of the classes
	tensors  [][]int   // of each class
	warnings []string
	inside   []cluster.Path   // within machines of each class
	between  [][]cluster.Path // between machines of two classes
}

// Warnings are what was left out or mended, a line each.
func (j *Job) Warnings() []string { return j.warnings }

// NewJob checks that profile, cluster and options fit together; errors wrap ErrOptions, ErrProfile or ErrInfeasible.
func NewJob(p *Profile, t *cluster.Topology, o Options) (*Job, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	j := &Job{Profile: p, Topology: t, Options: o}
	for _, w := range p.Warnings {
		// Other devices of the profile do not matter.
		device, _, _ := strings.Cut(w, ",")
		if !slices.Contains(p.Devices(), device) || slices.ContainsFunc(t.Classes, func(c cluster.Class) bool { return c.Device == device }) {
			j.warnings = append(j.warnings, w)
		}
	}
	for _, c := range t.Classes {
		tensors := slices.DeleteFunc(p.Tensors(c.Device), func(t int) bool { return c.PerMachine%t != 0 })
		if len(tensors) == 0 {
			known := slices.Contains(p.Devices(), c.Device)
			if known {
				return nil, fmt.Errorf("%w: %s was profiled at tensor degrees %v; none divides the %d devices of a machine", ErrProfile, c.Device, p.Tensors(c.Device), c.PerMachine)
			}
			return nil, fmt.Errorf("%w: %s is in the cluster, but the profile of %s does not have it; it has %v", ErrProfile, c.Device, p.Model, p.Devices())
		}
		j.devices = append(j.devices, c.Device)
		j.tensors = append(j.tensors, tensors)
	}
	for a := range t.Classes {
		j.inside = append(j.inside, t.Within(a))
		j.between = append(j.between, nil)
		for b := range t.Classes {
			j.between[a] = append(j.between[a], t.Between(a, b))
		}
	}
	if n := len(p.Layers); o.LeastStages > n {
		return nil, fmt.Errorf("%w: at least %d stages, but %s has %d layers", ErrOptions, o.LeastStages, p.Model, n)
	}
	j.compare()
	if err := j.layersFit(); err != nil {
		return nil, err
	}
	return j, nil
}

func (o Options) withDefaults() (Options, error) {
	bad := func(format string, args ...any) (Options, error) {
		return o, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
	}
	if len(o.GlobalBatches) == 0 {
		return bad("no global batch")
	}
	for name, list := range map[string][]int{"global batch": o.GlobalBatches, "micro-batch": o.MicroBatches, "replicas": o.Replicas} {
		for _, v := range list {
			if v < 1 || v > cluster.MaxGlobalBatch {
				return bad("%s %d; must lie in 1..%d", name, v, cluster.MaxGlobalBatch)
			}
		}
	}
	o.LeastStages = max(o.LeastStages, 1)
	if o.MostStages == 0 {
		o.MostStages = math.MaxInt32
	}
	if o.MostStages < o.LeastStages {
		return bad("at most %d stages, but at least %d", o.MostStages, o.LeastStages)
	}
	if o.Memory == 0 {
		o.Memory = 1
	}
	if !(o.Memory > 0 && o.Memory <= 1) || !(o.Reserve >= 0) || math.IsInf(o.Reserve, 0) {
		return bad("memory share %v, reserve %v bytes; want a share above 0, up to 1, and at least 0 bytes", o.Memory, o.Reserve)
	}
	if len(o.Shardings) == 0 {
		o.Shardings = []Sharding{Replicated, Optimizer, Full}
	}
	for _, s := range o.Shardings {
		if s != Replicated && s != Optimizer && s != Full {
			return bad("sharding %q; want none, optimizer or full", s)
		}
	}
	switch o.Checkpoint {
	case "":
		o.Checkpoint = "auto"
	case "auto", "never", "always":
	default:
		return bad("checkpoint %q; want auto, never or always", o.Checkpoint)
	}
	if o.States == (States{}) {
		o.States = Mixed
	}
	if s := o.States; !(s.Weights > 0) || !(s.Gradients >= 0) || !(s.Optimizer >= 0) {
		return bad("states %+v; bytes must be at least 0, those of weights above", s)
	}
	if v := &o.Overlap; !v.Off {
		if v.Compute == 0 && v.Communication == 0 {
			v.Compute, v.Communication = defaultSlowdown, defaultSlowdown
		}
		if !(v.Compute >= 1 && v.Communication >= 1) {
			return bad("overlap %+v; slowdowns must be at least 1", *v)
		}
	}
	return o, nil
}

// defaultSlowdown of overlapping compute and communication: measured by Galvatron's authors on 8 GPUs (their
// overlap_coefficient.json).
const defaultSlowdown = 1.1256

// compare numbers layers, and runs of layers, by what they cost.
func (j *Job) compare() {
	n := len(j.Profile.Layers)
	kinds := map[string]int32{}
	for i, l := range j.Profile.Layers {
		before := 0.0
		if i > 0 {
			before = j.Profile.Layers[i-1].Output
		}
		k := fmt.Sprint(l.Parameters, l.Output, before, l.Runs)
		if _, ok := kinds[k]; !ok {
			kinds[k] = int32(len(kinds))
		}
		j.alike = append(j.alike, kinds[k])
	}
	j.kinds = len(kinds)
	j.counts = [][]int{make([]int, j.kinds)}
	for i, k := range j.alike {
		next := slices.Clone(j.counts[i])
		next[k]++
		j.counts = append(j.counts, next)
	}
	j.same = make([][]int32, n)
	runs := map[[2]int32]int32{} // kind of the first layer, number of the rest
	for from := n - 1; from >= 0; from-- {
		j.same[from] = make([]int32, n-from)
		for to := from + 1; to <= n; to++ {
			k := [2]int32{j.alike[from], -1}
			if to > from+1 {
				k[1] = j.same[from+1][to-from-2]
			}
			if _, ok := runs[k]; !ok {
				runs[k] = int32(len(runs))
			}
			j.same[from][to-from-1] = runs[k]
		}
	}
}

// content numbers what layers from..to-1 are.
func (j *Job) content(from, to int) int32 { return j.same[from][to-from-1] }

// limit is the bytes of a device that a plan may fill, its reserve included.
func (j *Job) limit(class int) float64 { return j.Topology.Classes[class].Memory * j.Options.Memory }

// layersFit finds a layer that no device holds in any way: a micro-batch of one, sharded over all replicas.
func (j *Job) layersFit() error {
	for i, l := range j.Profile.Layers {
		fits, least, widest := false, math.Inf(1), ""
		for c, class := range j.Topology.Classes {
			for _, t := range j.tensors[c] {
				s := j.Options.States
				need := l.Parameters/float64(t)*(s.Weights+s.Gradients+s.Optimizer/float64(max(1, class.Count/t))) + j.Options.Reserve
				if slices.Contains(j.Options.Shardings, Full) {
					need = l.Parameters/float64(t)*s.Weights + j.Options.Reserve
				}
				fits = fits || need <= j.limit(c)
				if need-j.limit(c) < least {
					least = need - j.limit(c)
					widest = fmt.Sprintf("%s at tensor degree %d: %s of %s", class.Device, t, gigabytes(need), gigabytes(j.limit(c)))
				}
			}
		}
		if !fits {
			return fmt.Errorf("%w: layer %d (%s) is larger than every device; nearest is %s; profile a higher tensor degree or add larger devices", ErrInfeasible, i, l.Name, widest)
		}
	}
	return nil
}

func gigabytes(b float64) string {
	if b < 1<<30 {
		return fmt.Sprintf("%.3g MiB", b/(1<<20))
	}
	return fmt.Sprintf("%.2f GiB", b/(1<<30))
}
