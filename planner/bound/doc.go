// Package bound computes a lower bound on the iteration time of all plans of a job, whatever their stages, devices, shares
// and strategies. A search prints it beside the plan that it found. Lower bounds 1F1B plans; Work is looser and holds under
// every schedule.
//
// Lower works in these steps; the files named have the formulas.
//
//  1. Floors (floors.go): on a number of devices of a class every layer has a least time, a least memory and a least
//     exchange, each with the strategy and place that is best for it alone. Sums of floors bound a stage from below.
//  2. Options (options.go, mixed.go): a run of consecutive layers can be a stage in a few ways, by class and number of
//     devices. Only options that no other option beats matter.
//  3. Every stage bounds the iteration: it computes all micro-batches, it waits for the stages after it to return the first
//     one, and the stages before it delay its start. The bound uses the busiest stage. Plans are divided into intervals of
//     the time of their busiest stage (intervals.go). The interval with the least bound is split, again and again (branch
//     and bound).
//  4. Within an interval, devices have prices (Lagrangian relaxation): the time of a plan is at least its time, plus the
//     price of its devices, minus the price of all devices. At given prices, dynamic programming finds the cheapest way to
//     cut the layers into stages (stages.go). Any prices give a valid bound; cutting planes find good ones (prices.go).
package bound

import (
	"slices"

	"evenkeel/cluster"
	"evenkeel/planner/costmodel"
	"evenkeel/planner/layerprofile"
)

// model is one of costmodel.Model.Parts, with fields for what is looked up often.
type model struct {
	*costmodel.Model
	classes []cluster.Class
	layers  []layerprofile.Layer
	kinds   []int32 // of each layer
	options costmodel.Options
}

// parts are models. Together they price all plans.
func parts(m *costmodel.Model) (all []*model) {
	for _, p := range m.Parts() {
		all = append(all, &model{Model: p, classes: p.Classes(), layers: p.Layers(), kinds: p.Kinds(), options: p.Choices()})
	}
	return all
}

// count is the number of devices of a class.
func (m *model) count(class int) float64 { return float64(m.classes[class].Count) }

// microBatches are the possible numbers of samples of a micro-batch, over all replicas.
func (m *model) microBatches(globalBatch int) (all []int) {
	most := m.Count() * m.largestShare()
	for _, b := range costmodel.Divisors(globalBatch) {
		if b <= most && m.allowed(b) {
			all = append(all, b)
		}
	}
	return all
}

// allowed says whether the options let a micro-batch have so many samples.
func (m *model) allowed(samples int) bool {
	return m.options.MicroBatches == nil || slices.ContainsFunc(m.options.MicroBatches, func(n int) bool {
		return samples%n == 0 && (m.options.Replicas == nil || slices.Contains(m.options.Replicas, samples/n))
	})
}

// largestShare is the largest share of a micro-batch that a replica may take, in samples: the largest that was profiled.
func (m *model) largestShare() (share int) {
	for _, l := range m.layers {
		for _, r := range l.Runs {
			share = max(share, r.MicroBatch)
		}
	}
	return share
}
