package live

import (
	"errors"
	"slices"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/state"
)

// Behind is how many plans older than the newest a report's plan may be: a job that draws its
// batches ahead runs sizes some rounds late.
const Behind = 255

// ErrMixed says that a generation gets reports of all ranks and of single ones.
var ErrMixed = errors.New("live: this generation reports in the other way")

// Generation is one start of a job's process group. Times count from any fixed origin and do not
// decrease from one call to the next. All ranks are assumed to be present. One that hands in nothing is lost in its
// round; the controller leaves it out and tries it again.
type Generation struct {
	cluster  *cluster.Cluster
	collect  cluster.Collect // as registered; rounds wait for all until the paces are known
	plans    [Behind + 1]handed
	newest   int // number of the newest plan
	measured []bool
	last     int    // newest round that was accepted; -1: none
	window   uint64 // bit k: round last-k was accepted; older ones are forgotten
	report   cluster.Report
	rounds   *rounds // of single ranks; nil: rank 0 reports for all, or there was no report yet
}

// handed is a plan as it was handed out.
type handed struct {
	number int
	at     time.Duration
	shares []int
	steps  []int // largest micro-step of each rank
	timed  bool
}

// NewGeneration begins with the ranks of c, whose Collect it sets: the rule of the cluster applies once
// every rank with a share has been measured.
func NewGeneration(c *cluster.Cluster) *Generation {
	n := len(c.Nodes)
	g := &Generation{cluster: c, collect: c.Collect, measured: make([]bool, n), last: -1, report: cluster.Report{Nodes: make([]cluster.NodeReport, n)}}
	if c.Collect.Timed() {
		c.Collect = cluster.Collect{} // a deadline follows from the paces
	}
	return g
}

// Cluster returns the generation's cluster.
func (g *Generation) Cluster() *cluster.Cluster { return g.cluster }

// Present says which ranks the next plan is for.
func (g *Generation) Present() []bool {
	return slices.Repeat([]bool{true}, len(g.cluster.Nodes))
}

// Hand notes a plan that is handed out at time now.
func (g *Generation) Hand(plan cluster.Plan, now time.Duration) {
	h := &g.plans[plan.Number%len(g.plans)]
	h.number, h.at, h.timed = plan.Number, now, plan.Beyond()
	h.shares, h.steps = append(h.shares[:0], plan.Sizes...), h.steps[:0]
	for i := range plan.Sizes {
		h.steps = append(h.steps, g.cluster.Nodes[i].Full())
	}
	g.newest = plan.Number
	if g.rounds != nil {
		g.rounds.open(h, plan.Collect)
	}
}

// find returns the plan with a number; Old if it was forgotten, an error if it was not handed out.
func (g *Generation) find(number int) (*handed, Verdict, error) {
	if number < 1 || number > g.newest {
		return nil, Accepted, fault("plan", "is %d; plans 1 to %d were handed out", number, g.newest)
	}
	h := &g.plans[number%len(g.plans)]
	if h.number != number {
		return nil, Old, nil
	}
	return h, Accepted, nil
}

// Take judges a report of all ranks that arrives at time now. It returns an accepted one as the controller reads it, valid
// until the next call. An error is the sender's fault and changes nothing.
func (g *Generation) Take(r *Report, now time.Duration) (Verdict, *cluster.Report, error) {
	if g.rounds != nil {
		return 0, nil, ErrMixed
	}
	if n := len(g.cluster.Nodes); len(r.Ranks) != n {
		return 0, nil, fault("ranks", "%d ranks; this generation has %d", len(r.Ranks), n)
	}
	h, verdict, err := g.find(r.Plan)
	if err != nil || verdict == Old {
		return verdict, nil, err
	}
	if verdict, err := g.number(r.Round); err != nil || verdict != Accepted {
		return verdict, nil, err
	}
	if err := r.check(h); err != nil {
		return 0, nil, err
	}
	g.advance(r.Round)
	r.fill(h, &g.report, max(now-seconds(r.WaitSeconds), 0))
	return Accepted, &g.report, nil
}

// number judges a round's number.
func (g *Generation) number(round int) (Verdict, error) {
	switch back := g.last - round; {
	case round < 0 || round > g.last+maxGap:
		return 0, fault("round", "is %d; the newest reported is %d", round, g.last)
	case back < 0:
		return Accepted, nil
	case g.window>>back&1 == 1:
		return Duplicate, nil
	}
	return Old, nil
}

// advance notes a round as reported.
func (g *Generation) advance(round int) {
	g.window = g.window<<min(round-g.last, 64) | 1
	g.last = round
}

// Observe processes a report before the controller does. Once it has measurements of all ranks with a share, the registered
// rule applies; before, no deadline can be computed.
func (g *Generation) Observe(report *cluster.Report) {
	for i := range report.Nodes {
		if report.Nodes[i].Measured() {
			g.measured[i] = true
		}
	}
	if g.cluster.Collect == g.collect {
		return
	}
	for i, share := range g.plans[g.newest%len(g.plans)].shares {
		if share > 0 && !g.measured[i] {
			return
		}
	}
	g.cluster.Collect = g.collect
}

// Keep encodes the state of a generation, its cluster included.
func (g *Generation) Keep() ([]byte, error) { return state.Encode(g) }

// Recall restores the state that Keep encoded, into a generation begun with the same ranks. After an error the generation is
// unusable.
func (g *Generation) Recall(kept []byte) error {
	g.rounds = newRounds(g.cluster) // Decode makes it nil if the kept generation had none
	return state.Decode(kept, g)
}
