package cluster

import "slices"

// Quorums and Graces are the values from which a policy may choose a round rule: shares
// of the nodes, and shares of the time that the quorum took.
var (
	Quorums = []float64{0.5, 0.7, 0.8, 0.9, 0.95, 1}
	Graces  = []float64{0, 0.03, 0.06, 0.1, 0.2, 0.4}
)

// Rule is a choice of quorum and grace.
type Rule struct {
	Quorum float64 // share of the nodes, (0, 1]
	Grace  float64 // share of the quorum's time, >= 0; means nothing where the quorum is 1
}

// Rules are all the combinations of Quorums and Graces, waiting for everybody last.
var Rules = func() []Rule {
	var all []Rule
	for _, q := range Quorums {
		for _, g := range Graces {
			if q < 1 {
				all = append(all, Rule{q, g})
			}
		}
	}
	return append(all, Rule{Quorum: 1})
}()

// String is "quorum 80% +3%", or "quorum all".
func (r Rule) String() string {
	text := "quorum " + shares([]float64{r.Quorum})
	if r.Quorum < 1 && r.Grace > 0 {
		text += " +" + shares([]float64{r.Grace})
	}
	return text
}

// Apply returns c with the rule's quorum and grace; staleness bound and timeout stay.
func (r Rule) Apply(c Collect) Collect {
	c.Quorum, c.Grace, c.GraceShare = Quorum{Share: r.Quorum}, 0, r.Grace
	return c
}

// Choices is what a policy may choose beside the sizes. The zero value leaves it no
// choice: the cluster's Collect and GlobalBatch are fixed.
type Choices struct {
	Quorum []float64 // of Quorums; none: the rule of Collect is fixed
	Grace  []float64 // of Graces; none: 0
	// LeastBatch and MostBatch bound the global batch, in samples; both 0: it is fixed.
	LeastBatch, MostBatch int
}

// Rules are the indices into Rules that may be chosen, none where the rule is fixed.
func (c *Choices) Rules() []int {
	var allowed []int
	for i, r := range Rules {
		if slices.Contains(c.Quorum, r.Quorum) && (r.Quorum == 1 || slices.Contains(c.Grace, r.Grace) || len(c.Grace) == 0 && r.Grace == 0) {
			allowed = append(allowed, i)
		}
	}
	return allowed
}
