package plan

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
	"evenkeel/planner/calibration"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/estimate"
	"evenkeel/planner/layerprofile"
)

// inputFlags name the inputs of the cost model.
type inputFlags struct {
	Profile   string `help:"Layer profile, .csv. Default: the built-in example, OPT-350M." placeholder:"FILE"`
	Model     string `help:"Model to estimate instead of a layer profile: a config.json of Hugging Face, its folder, or a name such as llama-3-8b. Times come from the data sheets of the cluster's devices." placeholder:"FILE|NAME"`
	Tokens    *int   `help:"Tokens of a sample, with --model. Default: the most that the model takes, at most 4096." placeholder:"N"`
	Attention string `help:"With --model: flash, or eager, which keeps the scores of attention. Default: ${default}." enum:"flash,eager" default:"flash"`
	Cluster   string `help:"Cluster file with nodes, per_machine, links and switches. Default: the built-in example, 32 A100 and 96 V100." placeholder:"FILE"`
	Precision string `help:"Bytes per parameter of weights, gradients and optimizer state: mixed (2, 4, 12), bf16 (2, 2, 12: gradients summed in 16 bits) or fp32 (4, 4, 8). Default: ${default}; fp32 for the example." enum:"mixed,bf16,fp32" default:"mixed"`
	Sequence  *bool  `name:"sequence-parallel" negatable:"" help:"Layers with a tensor degree are trained sequence-parallel, too: devices keep fewer activations (sequence_bytes of the layer profile) and send parts of them on. Default: yes with --for megatron, otherwise no."`
	Overlap   string `help:"Factor by which computation and communication slow each other down while both run, at least 1; or off: they never overlap. Default: 1.1256 (measured by the authors of Galvatron)." placeholder:"X"`
}

// builtin says whether the layer profile is the built-in example.
func (f *inputFlags) builtin() bool { return f.Profile == "" && f.Model == "" }

// precision is the flag, or the precision that the built-in example was measured with.
func (f *inputFlags) precision() string {
	if f.builtin() {
		return "fp32"
	}
	return f.Precision
}

// read loads the profile and the cluster, and sets the options that the flags give.
func (f *inputFlags) read(o *planner.Options) (*layerprofile.Profile, *cluster.Topology, error) {
	p, t, err := planner.Example()
	if err != nil {
		return nil, nil, err
	}
	o.States = map[string]costmodel.States{"mixed": costmodel.Mixed, "bf16": costmodel.BF16, "fp32": costmodel.Full32}[f.precision()]
	if f.Sequence != nil {
		o.Sequence, o.Unsequenced = *f.Sequence, !*f.Sequence
	}
	if f.Model != "" && (f.Profile != "" || f.Cluster == "") {
		return nil, nil, badinput.Errorf("--model: needs --cluster, and stands instead of --profile")
	}
	if f.Tokens != nil && (f.Model == "" || *f.Tokens < 1) {
		return nil, nil, badinput.Errorf("--tokens: %d; must be at least 1, and needs --model", *f.Tokens)
	}
	if f.Profile != "" {
		if p, err = layerprofile.Load(f.Profile); err != nil {
			return nil, nil, cli.FileError(err)
		}
	}
	if f.Cluster != "" {
		if t, err = clusterfile.LoadTopology(f.Cluster, profile.Embedded()); f.Cluster == "example" && errors.Is(err, fs.ErrNotExist) {
			return nil, nil, badinput.Errorf("--cluster: there is no file example; without the flag it is the built-in example")
		} else if err != nil {
			return nil, nil, cli.FileError(err)
		}
	}
	if f.Model != "" {
		if p, err = f.estimate(t, o.States); err != nil {
			return nil, nil, err
		}
	}
	switch f.Overlap {
	case "":
	case "off":
		o.Overlap.Off = true
	default:
		v, err := strconv.ParseFloat(f.Overlap, 64)
		if err != nil || !(v >= 1) || math.IsInf(v, 0) {
			return nil, nil, badinput.Errorf("--overlap: %q; must be a number of at least 1, or off", f.Overlap)
		}
		o.Overlap.Compute, o.Overlap.Communication = v, v
	}
	return p, t, nil
}

// estimate makes the layer profile of the model on the devices of the cluster.
func (f *inputFlags) estimate(t *cluster.Topology, s costmodel.States) (*layerprofile.Profile, error) {
	m, err := estimate.Load(f.Model)
	if err != nil {
		return nil, cli.FileError(err)
	}
	o := estimate.Options{Weights: s.Weights, Gradients: s.Gradients, Optimizer: s.Optimizer, Eager: f.Attention == "eager"}
	if f.Tokens != nil {
		o.Tokens = *f.Tokens
	}
	p, err := m.Profile(t, profile.Embedded(), o)
	if err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	return p, nil
}

// jobFlags are embedded by commands that compute the cost of plans.
type jobFlags struct {
	inputFlags
	Calibration string  `help:"Calibration file, written by evenkeel plan calibrate. Default: times as in the profile, a quarter of every device's memory, at most 5 GB, for what training takes beside the model, activations a tenth larger and gradients three times; none: no such allowance." placeholder:"FILE"`
	Memory      float64 `help:"Share of every device's memory that a plan may use. Default: ${default}." default:"1" placeholder:"SHARE"`
	Reserve     string  `help:"Memory of every device that is kept free besides, for example 1GiB. Default: none." placeholder:"BYTES"`
}

// planFlags are embedded by commands that price a given plan.
type planFlags struct {
	jobFlags
	For string `help:"Predict the plan as this trainer runs it: megatron, deepspeed (which, in a pipeline and without ZeRO, exchanges gradients after the last backward pass) or torch. Default: gradients are exchanged during the backward pass." placeholder:"TRAINER"`
}

// load reads the plan, and makes its job as the trainer of the flag runs it.
func (f *planFlags) load(path string) (*planner.Plan, *planner.Job, error) {
	p, err := planner.LoadPlan(path)
	if err != nil {
		return nil, nil, cli.FileError(err)
	}
	job, err := f.read(planner.Options{GlobalBatches: []int{p.GlobalBatch}})
	if err != nil {
		return nil, nil, err
	}
	if job, err = job.For(f.For); err != nil {
		return nil, nil, unknownTrainer(f.For)
	}
	return p, job, nil
}

func unknownTrainer(name string) error {
	return badinput.Errorf("--for: %.40q; want megatron, deepspeed or torch%s", name, cli.DidYouMean(name, []string{"megatron", "deepspeed", "torch"}))
}

func (f *jobFlags) read(o planner.Options) (*planner.Job, error) {
	p, t, err := f.inputFlags.read(&o)
	if err != nil {
		return nil, err
	}
	if o.Calibration, err = f.calibration(t); err != nil {
		return nil, err
	}
	o.Memory = f.Memory
	if !(f.Memory > 0 && f.Memory <= 1) {
		return nil, badinput.Errorf("--memory: %v; must be above 0, and at most 1", f.Memory)
	}
	if f.Reserve != "" {
		b, err := clusterfile.ParseBytes(f.Reserve)
		if err != nil {
			return nil, badinput.Errorf("--reserve: %w", err)
		}
		o.Reserve = float64(b)
	}
	job, err := planner.NewJob(p, t, o)
	if f.builtin() && errors.Is(err, layerprofile.ErrProfile) {
		return nil, fmt.Errorf("%w; it is the built-in example: name your own with --profile", err)
	}
	return job, err
}

// warn prints what was corrected or left out in the inputs, unless both are the built-in example, which the user cannot correct.
func (f *jobFlags) warn(a *cli.App, job *planner.Job) {
	if f.builtin() && f.Cluster == "" {
		return
	}
	for _, w := range job.Warnings() {
		a.Log.Warn().Msg(w)
	}
}

// unlike is the error about a plan that does not fit the inputs.
func (f *jobFlags) unlike(plan string, err error) error {
	if f.builtin() && errors.Is(err, planner.ErrPlan) {
		return fmt.Errorf("%s: %w; it was compared with the built-in example: name the layer profile with --profile and the cluster with --cluster", plan, err)
	}
	return fmt.Errorf("%s: %w", plan, err)
}

// under names the flags under which a prediction is made.
func under(precision, overlap string) string {
	if overlap == "" {
		return fmt.Sprintf("--precision %s with the default --overlap", precision)
	}
	return fmt.Sprintf("--precision %s --overlap %s", precision, overlap)
}

// calibration reads the calibration file, or is the default allowance without one.
func (f *jobFlags) calibration(t *cluster.Topology) (costmodel.Calibration, error) {
	switch f.Calibration {
	case "":
		return costmodel.Uncalibrated(), nil
	case "none":
		return costmodel.Calibration{}, nil
	}
	file, err := calibration.Open(f.Calibration)
	if err != nil {
		return costmodel.Calibration{}, cli.FileError(err)
	}
	if file.Precision != f.precision() || file.Overlap != f.Overlap {
		return costmodel.Calibration{}, badinput.Errorf("%s: holds for %s, but the flags are %s; give the same flags, or calibrate again with these", f.Calibration, under(file.Precision, file.Overlap), under(f.precision(), f.Overlap))
	}
	var devices []string
	for _, c := range t.Classes {
		devices = append(devices, c.Device)
	}
	c, err := file.Of(devices)
	if err != nil {
		return c, fmt.Errorf("%s: %w", f.Calibration, err)
	}
	return c, nil
}
