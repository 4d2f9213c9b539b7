package main

import (
	"cmp"
	"slices"
)

// hypervolume is the volume of what the points dominate above the reference, all
// objectives to be large: hypervolume by slicing objectives (While et al. 2006), exact.
func hypervolume(points [][]float64, reference []float64) float64 {
	var inside [][]float64
	for _, p := range points {
		above := make([]float64, len(p))
		for o := range p {
			above[o] = max(p[o]-reference[o], 0)
		}
		inside = append(inside, above)
	}
	return slice(inside, len(reference))
}

// slice is the hypervolume above zero of the first objectives.
func slice(points [][]float64, objectives int) float64 {
	if objectives == 1 {
		most := 0.0
		for _, p := range points {
			most = max(most, p[0])
		}
		return most
	}
	// From the highest slab of the last objective down: only the points that reach a slab
	// count in it.
	sorted := slices.Clone(points)
	last := objectives - 1
	slices.SortFunc(sorted, func(p, q []float64) int { return cmp.Compare(q[last], p[last]) })
	volume := 0.0
	for i := range sorted {
		floor := 0.0
		if i+1 < len(sorted) {
			floor = sorted[i+1][last]
		}
		if height := sorted[i][last] - floor; height > 0 {
			volume += height * slice(sorted[:i+1], last)
		}
	}
	return volume
}
