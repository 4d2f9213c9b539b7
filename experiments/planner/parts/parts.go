package main

// part is something that the search can do without: in a file one piece of code stands for another.
type part struct {
	name, file, old, without string
	functions                []string // that would go; none: no more than the changed lines
	folder                   string   // that would go, too
}

const (
	job       = "planner/search.go"
	dp        = "planner/search/dp.go"
	run       = "planner/search/search.go"
	pack      = "planner/costmodel/pack.go"
	condition = "planner/costmodel/condition.go"
	refining  = "planner/refine/refine.go"
	moves     = "planner/refine/moves.go"
	drafts    = "planner/refine/draft.go"
)

var parts = []part{
	{"nothing, with other random numbers", refining, "rand.NewPCG(1, uint64(i))", "rand.NewPCG(2, uint64(i))", nil, ""},
	// The dynamic programming.
	{"beam search before the exact", run, "t.fill(ctx, s.limit, FirstPassWidth, true)", "", nil, ""},
	{"all states after the beam search", run, "t.fill(ctx, s.limit, o.Width, false)", "", []string{"dropDominated", "dominates", "leavesAtLeast", "insert"}, ""},
	{"several points of a state (labels)", dp, "if s.quick && len(st.nodes) > 0 {", "if len(st.nodes) > 0 {", []string{"insert", "dominates"}, ""},
	{"dominated states dropped", dp, "level = s.dropDominated(level)", "", []string{"dropDominated", "leavesAtLeast", "sum"}, ""},
	{"turns over the layers left", "planner/search/prune.go", "groups[a.from] = append(groups[a.from], a.state)", "groups[0], order = append(groups[0], a.state), []int32{0}", nil, ""},
	{"the least work that memory allows (relax)", pack, "\treturn least\n", "\treturn 0 * least\n", []string{"Least"}, ""},
	{"stages of two kinds", condition, "for first := part; first < replicas; first += part {", "for first := replicas; first < replicas; first += part {", nil, ""},
	// Packing.
	{"some layers of a kind unlike others (pack)", pack, "n, all = math.Floor(max(0, fit)), false", "n, all = 0, false", []string{"fill", "convex", "peaksOf", "peaks"}, ""},
	{"packing by a second weight", pack, "weights{{float64(c.microBatches()), 1}, {1, 1}}", "weights{{float64(c.microBatches()), 1}}", nil, ""},
	{"packing below a lower peak", pack, "if ok && all {", "if ok && (all || true) {", []string{"peaksOf", "peaks"}, ""},
	// From the dynamic programming to the plan.
	{"simulating the 24 cheapest", job, "ranked  = 24", "ranked  = 1", nil, ""},
	{"refining other numbers of stages", job, "if alike < each {", "if alike < 0 {", []string{"starts"}, ""},
	{"refining what does not fit", job, "return j.repaired(ctx, within, r, err, progress)", "return nil, nil, err", []string{"repaired"}, ""},
	// Refining.
	{"refining", job, "Refined: !options.Unrefined && ", "Refined: false && ", []string{"refine", "repaired", "starts"}, "planner/refine"},
	{"simulation in refining", drafts, "len(stages) > simulatedPasses/(r.batch/d.micro)", "true", nil, ""},
	{"random changes between descents", refining, "f.best = r.improve(ctx, r.descend(ctx, f.best))", "f.best = r.descend(ctx, f.best)", []string{"improve"}, ""},
	{"more work on three finalists", refining, "each(last, search(prices*len(all)/2/last))", "", nil, ""},
	{"boundaries by 2 and 4 layers", moves, "[]int{-4, -2, -1, 1, 2, 4}", "[]int{-1, 1}", nil, ""},
	{"boundaries moved", moves, "[]int{-4, -2, -1, 1, 2, 4}", "[]int{}", []string{"shift"}, ""},
	{"two stages merged", moves, "func(d *draft) bool { return r.merge(d, i) }, ", "", []string{"merge"}, ""},
	{"neighbours' devices swapped", moves, ", func(d *draft) bool { return r.swap(d, i) })", ")", []string{"swap"}, ""},
	{"a stage split", moves, "cuts = append(cuts, r.splits(d, i)...)", "", []string{"splits"}, ""},
	{"strategies of layers", moves, "strategies = append(strategies, r.strategyMoves(d, i)...)", "", []string{"strategyMoves"}, ""},
	{"tensor degrees of layers", moves, "for _, t := range append([]int{0}, r.degrees(s)...) {", "for _, t := range []int{0} {", []string{"degrees"}, ""},
	{"another share", moves, "return d.reshare(i, g, to)", "return d.reshare(i, g, to) && false", []string{"reshare"}, ""},
	{"tensor degrees of groups", moves, "t != team.tensor && team.devices()%t == 0 {\n\t\t\t\t\tshares", "false {\n\t\t\t\t\tshares", []string{"retensor"}, ""},
	{"another micro-batch", moves, "if b := r.micros[i]; b != d.micro {", "if b := r.micros[i]; b != d.micro && false {", nil, ""},
	{"devices in the other order", moves, "func(d *draft) bool { d.upward = !d.upward; return true }", "func(d *draft) bool { return false }", nil, ""},
	{"devices moved", moves, "whole, r.transfers(d)}", "whole}", []string{"transfers", "amounts", "drop", "give"}, ""},
}
