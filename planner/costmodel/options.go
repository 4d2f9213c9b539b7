package costmodel

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// ErrOptions is wrapped by errors about options. It is bad input.
var ErrOptions = badinput.New("planner: invalid options")

// Options are the preset conditions and what a plan may use. The zero value of a field means its default.
type Options struct {
	GlobalBatches []int // samples of an iteration, at least one; of several, the one with the least time per sample wins
	MicroBatches  []int // samples of a replica's micro-batch to try; default: all divisors of what the replicas leave
	Replicas      []int // replicas of a stage to try; default: all divisors of the global batch
	Tensors       []int // tensor degrees to try; default: all that were profiled
	Contexts      []int // degrees of context parallelism to try; default: all that divide a machine, if the profile has context_bytes
	Experts       []int // degrees of expert parallelism to try; default: all that divide the experts of every layer that has any
	Sequence      bool  // layers with a tensor degree are trained sequence-parallel, too
	Unsequenced   bool  // they are not, even by a trainer that does so unless told otherwise: Megatron-LM
	LeastStages   int   // default 1
	MostStages    int   // default: the number of layers

	Memory    float64    // share of a device's memory that a plan may fill, above 0, up to 1; default 1
	Reserve   float64    // bytes of a device kept free for the driver and the allocator
	Shardings []Sharding // default: all
	// Checkpoint says whether layers may be checkpointed: "auto" (default), "never", "always"; "selective": all of them in part.
	Checkpoint string
	States     States
	// Calibration is what measured plans say; the zero value: the formulas alone.
	Calibration Calibration
	// Overlap says how much compute and communication slow each other down while both run.
	Overlap Overlap
}

// States are the bytes that training holds for each parameter.
type States struct{ Weights, Gradients, Optimizer float64 }

// Mixed is 16-bit weights, and gradients, Adam's moments and a master copy in 32 bits. BF16 sums gradients in 16 bits, too, which
// loses what micro-batches add to large sums. Full32 is all in 32 bits.
var (
	Mixed  = States{2, 4, 12}
	BF16   = States{2, 2, 12}
	Full32 = States{4, 4, 8}
)

// Overlap is how many times longer compute and communication take while both run; Off: they do not run together.
type Overlap struct {
	Compute, Communication float64 // at least 1
	Off                    bool
}

// defaultSlowdown of overlapping compute and communication: measured by Galvatron's authors on 8 GPUs (their
// overlap_coefficient.json).
const defaultSlowdown = 1.1256

// together is the seconds until both compute and communication are done, begun at the same time: Galvatron's overlap
// with a slowdown for each.
func (o Overlap) together(compute, communication float64) float64 {
	if o.Off {
		return compute + communication
	}
	if c, k := o.Compute*compute, o.Communication*communication; c <= k {
		return c + communication - c/o.Communication
	} else {
		return k + compute - k/o.Compute
	}
}

func badOption(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
}

func (o Options) withDefaults() (Options, error) {
	if len(o.GlobalBatches) == 0 {
		return o, badOption("no global batch")
	}
	for _, list := range []struct {
		name   string
		values []int
	}{{"global batch", o.GlobalBatches}, {"micro-batch", o.MicroBatches}, {"replicas", o.Replicas}, {"tensor degree", o.Tensors}, {"context degree", o.Contexts}, {"expert degree", o.Experts}} {
		for _, v := range list.values {
			if v < 1 || v > cluster.MaxGlobalBatch {
				return o, badOption("%s %d; must lie in 1..%d", list.name, v, cluster.MaxGlobalBatch)
			}
		}
	}
	o.LeastStages = max(o.LeastStages, 1)
	o.MostStages = cmp.Or(o.MostStages, math.MaxInt32)
	if o.MostStages < o.LeastStages {
		return o, badOption("at most %d stages, but at least %d", o.MostStages, o.LeastStages)
	}
	var err error
	if o.Calibration, err = o.Calibration.withDefaults(); err != nil {
		return o, err
	}
	if err := o.defaultMemory(); err != nil {
		return o, err
	}
	if err := o.defaultStrategies(); err != nil {
		return o, err
	}
	if v := &o.Overlap; !v.Off {
		if v.Compute == 0 && v.Communication == 0 {
			v.Compute, v.Communication = defaultSlowdown, defaultSlowdown
		}
		if !(v.Compute >= 1 && v.Communication >= 1) {
			return o, badOption("overlap %+v; slowdowns must be at least 1", *v)
		}
	}
	return o, nil
}

func (o *Options) defaultMemory() error {
	o.Memory = cmp.Or(o.Memory, 1)
	if !(o.Memory > 0 && o.Memory <= 1) || !(o.Reserve >= 0) || math.IsInf(o.Reserve, 0) {
		return badOption("memory share %v, reserve %v bytes; want a share above 0, up to 1, and at least 0 bytes", o.Memory, o.Reserve)
	}
	if o.States == (States{}) {
		o.States = Mixed
	}
	if s := o.States; !(s.Weights > 0) || !(s.Gradients >= 0) || !(s.Optimizer >= 0) {
		return badOption("states %+v; bytes must be at least 0, those of weights above", s)
	}
	return nil
}

func (o *Options) defaultStrategies() error {
	if len(o.Shardings) == 0 {
		o.Shardings = Shardings()
	}
	for _, s := range o.Shardings {
		if !slices.Contains(Shardings(), s) {
			return badOption("sharding %q; want none, optimizer, gradients or full", s)
		}
	}
	switch o.Checkpoint {
	case "":
		o.Checkpoint = "auto"
	case "auto", "never", "selective", "always":
	default:
		return badOption("checkpoint %q; want auto, never, selective or always", o.Checkpoint)
	}
	return nil
}
