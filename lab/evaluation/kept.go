package evaluation

// Kept is a Result with what its JSON leaves out, for a comparison that is taken up again.
type Kept struct {
	Result
	Ratios []float64 `json:"ratios"` // Result.Ratios
}

// Keep returns results in a form that JSON gives back whole.
func Keep(lines []Result) []Kept {
	kept := make([]Kept, len(lines))
	for k := range lines {
		kept[k] = Kept{lines[k], lines[k].ratios}
	}
	return kept
}

// Restore is the inverse of Keep.
func Restore(kept []Kept) []Result {
	lines := make([]Result, len(kept))
	for k := range kept {
		lines[k] = kept[k].Result
		lines[k].ratios = kept[k].Ratios
	}
	return lines
}
