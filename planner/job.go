package planner

import (
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/layerprofile"
	"evenkeel/planner/search"
)

// ErrOptions is wrapped by errors about options. It is bad input.
var ErrOptions = costmodel.ErrOptions

// ErrInfeasible is wrapped by errors that report that no plan exists, or that a plan does not fit memory.
var ErrInfeasible = search.ErrInfeasible

// Options are the preset conditions and what a plan may use. The zero value of a field means its default.
type Options = costmodel.Options

// Job is a model to be planned on a cluster.
type Job struct {
	Profile  *layerprofile.Profile
	model    *costmodel.Model
	topology *cluster.Topology
	devices  []string // of the cluster's classes
	classes  []cluster.Class
	options  Options
}

// NewJob checks that profile, cluster and options fit together. Errors wrap ErrOptions, layerprofile.ErrProfile or
// ErrInfeasible.
func NewJob(p *layerprofile.Profile, t *cluster.Topology, o Options) (*Job, error) {
	m, err := costmodel.New(p, t, o)
	if err != nil {
		return nil, err
	}
	j := &Job{Profile: p, model: m, topology: t, classes: t.Classes, options: o}
	for _, c := range t.Classes {
		j.devices = append(j.devices, c.Device)
	}
	return j, nil
}

// Warnings say, line by line, what was left out or corrected in the inputs.
func (j *Job) Warnings() []string { return j.model.Warnings() }

// Calibrated returns the job with another calibration of its devices. Errors wrap ErrOptions.
func (j *Job) Calibrated(c costmodel.Calibration) (*Job, error) {
	m, err := j.model.Calibrated(c)
	if err != nil {
		return nil, err
	}
	k := *j
	k.model, k.options.Calibration = m, c
	return &k, nil
}

// Classes are the classes of devices that groups of a plan may name.
func (j *Job) Classes() []cluster.Class { return slices.Clone(j.classes) }

// MemoryOf is the memory of a device of the cluster in bytes; 0: the cluster does not have the device.
func (j *Job) MemoryOf(device string) float64 {
	if i := slices.Index(j.devices, device); i >= 0 {
		return j.classes[i].Memory
	}
	return 0
}
