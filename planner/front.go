package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Priced is a plan and what it costs.
type Priced struct {
	Plan  *Plan
	Price float64 // of an iteration, in the unit of the prices
}

// maxPrice is the highest price of an hour. It keeps the price of a plan finite.
const maxPrice = 1e18

// maxParts is the largest number of parts of a cluster that Front searches.
const maxParts = 256

// Front searches for the plans that no other plan beats in both time and price per sample, the quickest first. prices are the
// prices of an hour of each class's device; a plan pays for the devices that it uses. Besides the whole cluster, Front searches
// parts of it: each class with all its machines, half of them, a quarter and so on, or none. So it may miss plans in between.
// It uses only the trainer and the schedule of options, and does not refine plans on parts. quickest, if not nil, is a plan that
// was already found. Errors wrap ErrOptions, ErrInfeasible, or the errors of Search about options.
func (j *Job) Front(ctx context.Context, prices map[string]float64, options SearchOptions, quickest *Plan, progress func(done, parts int)) ([]Priced, error) {
	if err := j.CheckPrices(prices); err != nil {
		return nil, err
	}
	parts := j.parts()
	var all []Priced
	add := func(p *Plan) { all = append(all, Priced{p, p.price(prices)}) }
	if quickest != nil {
		add(quickest)
	}
	options = SearchOptions{For: options.For, Schedule: options.Schedule, Unrefined: true}
	for i, counts := range parts {
		p, err := j.quickestOn(ctx, counts, options)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrInfeasible):
		case err != nil:
			return nil, err
		default:
			add(p)
		}
		progress(i+1, len(parts))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w on any part of the cluster", ErrInfeasible)
	}
	return front(all), nil
}

// CheckPrices reports what Front does not accept: a price that is not above 0 or is above maxPrice, a device of the cluster
// without a price, a price of a device that the cluster does not have, and too many kinds of devices. Errors wrap ErrOptions.
func (j *Job) CheckPrices(prices map[string]float64) error {
	for _, device := range slices.Sorted(maps.Keys(prices)) {
		if !slices.Contains(j.devices, device) {
			return fmt.Errorf("%w: a price of %s, which the cluster does not have; it has %v", ErrOptions, device, j.devices)
		}
		if p := prices[device]; !(p > 0 && p <= maxPrice) {
			return fmt.Errorf("%w: price %v of %s; want one above 0, up to 1e18", ErrOptions, p, device)
		}
	}
	for _, device := range j.devices {
		if _, ok := prices[device]; !ok {
			return fmt.Errorf("%w: no price of %s; want one for each device of the cluster, which has %v", ErrOptions, device, j.devices)
		}
	}
	if n := len(j.parts()); n > maxParts {
		return fmt.Errorf("%w: %d parts of the cluster to search; at most %d: use fewer kinds of devices", ErrOptions, n, maxParts)
	}
	return nil
}

// parts are the parts of the cluster to search: the number of devices of each class.
func (j *Job) parts() [][]int {
	parts := [][]int{nil}
	for _, c := range j.classes {
		var counts []int
		for n := c.Count / c.PerMachine; n > 0; n /= 2 {
			counts = append(counts, n*c.PerMachine)
		}
		var next [][]int
		for _, p := range parts {
			for _, n := range append(counts, 0) {
				next = append(next, append(slices.Clone(p), n))
			}
		}
		parts = next
	}
	return slices.DeleteFunc(parts, func(p []int) bool { return slices.Max(p) == 0 })
}

// quickestOn is the quickest plan that the dynamic programming finds on the first devices of each class.
func (j *Job) quickestOn(ctx context.Context, counts []int, options SearchOptions) (*Plan, error) {
	part, err := NewJob(j.Profile, j.topology.WithCounts(counts), j.options)
	if errors.Is(err, ErrOptions) { // valid for the whole cluster: the part has too few devices, or lacks a class
		return nil, fmt.Errorf("%w: %w", ErrInfeasible, err)
	}
	if err != nil {
		return nil, err
	}
	r, err := part.Search(ctx, options)
	if err != nil {
		return nil, err
	}
	r.Plan.Unused = j.unused(r.Plan)
	return r.Plan, nil
}

// unused are the devices of the cluster that no stage uses.
func (j *Job) unused(p *Plan) []Devices {
	taken := p.taken()
	var all []Devices
	for i, device := range j.devices {
		all = append(all, gaps(device, taken[device], j.classes[i].Count)...)
	}
	return all
}

func (p *Plan) price(prices map[string]float64) float64 {
	perHour := 0.0
	for _, s := range p.Stages[:p.Pipeline()] {
		for _, g := range s.Groups {
			perHour += prices[g.Device] * float64(g.Count)
		}
	}
	return perHour / 3600 * p.Predicted.Simulated
}

// front keeps the plans that no other plan beats in time and price per sample, the quickest first.
func front(all []Priced) []Priced {
	each := func(p Priced) (seconds, price float64) {
		return p.Plan.Predicted.Simulated / float64(p.Plan.GlobalBatch), p.Price / float64(p.Plan.GlobalBatch)
	}
	slices.SortStableFunc(all, func(a, b Priced) int {
		s, p := each(a)
		t, q := each(b)
		return cmp.Or(cmp.Compare(s, t), cmp.Compare(p, q))
	})
	var kept []Priced
	least := math.Inf(1)
	for _, p := range all {
		if _, price := each(p); price < least {
			kept, least = append(kept, p), price
		}
	}
	return kept
}
