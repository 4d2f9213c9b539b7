package planner

import (
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
	"github.com/evenkeel/evenkeel/planner/search"
)

// ErrOptions is wrapped by errors about options. It is bad input.
var ErrOptions = costmodel.ErrOptions

// ErrInfeasible is wrapped by errors that report that no plan exists, or that a plan does not fit memory.
var ErrInfeasible = search.ErrInfeasible

// Options are the preset conditions and what a plan may use. The zero value of a field means its default.
type Options = costmodel.Options

// Job is a model to be planned on a cluster.
type Job struct {
	Profile *layerprofile.Profile
	model   *costmodel.Model
	devices []string // of the cluster's classes
	classes []cluster.Class
	options Options
}

// NewJob checks that profile, cluster and options fit together. Errors wrap ErrOptions, layerprofile.ErrProfile or
// ErrInfeasible.
func NewJob(p *layerprofile.Profile, t *cluster.Topology, o Options) (*Job, error) {
	m, err := costmodel.New(p, t, o)
	if err != nil {
		return nil, err
	}
	j := &Job{Profile: p, model: m, classes: t.Classes, options: o}
	for _, c := range t.Classes {
		j.devices = append(j.devices, c.Device)
	}
	return j, nil
}

// Warnings are what was left out or corrected, a line each.
func (j *Job) Warnings() []string { return j.model.Warnings() }
