package live

import (
	"slices"
	"time"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// OwnReport is a rank's report of its own share, in jobs where no rank reports for all.
type OwnReport struct {
	Round int     // number of the rank's report, from 0, rising
	Plan  int     // whose share it is
	Pause float64 // seconds that the rank will stand still before its next share
	RankReport
}

// rounds are the rounds of ranks that report one by one. The round rule of package cluster collects their work.
type rounds struct {
	recorder *cluster.Recorder
	round    int
	plan     int       // plan of the open round
	shares   []int     // its shares
	handed   []int     // by rank: the plan of its present or last share
	reported []int     // by rank: its newest report; -1: none
	large    []int     // by rank: micro-batch that did not fit in the open round; 0: none
	waiting  []arrival // reports that no round has processed yet
	over     bool      // the round is closed, and the next plan is awaited
}

// arrival is an accepted report with its time.
type arrival struct {
	rank int
	at   time.Duration
	OwnReport
}

func newRounds(c *cluster.Cluster) *rounds {
	n := len(c.Nodes)
	return &rounds{
		recorder: cluster.NewRecorder(c),
		handed:   make([]int, n), reported: slices.Repeat([]int{-1}, n), large: make([]int, n),
	}
}

// open begins the round of a plan.
func (r *rounds) open(h *handed, collect cluster.Collect) {
	start := h.at
	if end, closed := r.recorder.Closed(); closed && r.over {
		start = end // what has arrived since is this round's
		r.round++
	}
	present := make([]bool, len(h.shares))
	for i, s := range h.shares {
		present[i] = s > 0
	}
	r.plan, r.shares, r.over = h.number, h.shares, false
	clear(r.large)
	r.recorder.Open(r.round, start, collect, present)
	for i := range r.shares {
		r.handOut(i, start)
	}
}

// handOut hands a rank its share, unless it has work.
func (r *rounds) handOut(rank int, now time.Duration) {
	if r.recorder.Waiting(rank) {
		r.recorder.HandOut(rank, r.shares[rank], now)
		r.handed[rank] = r.plan
	}
}

// TakeOwn judges a rank's report of its own share that arrives at time now. Next then says whether
// it closed a round. A rank that has handed in its share of the open round has no work until the next plan: until
// then its reports are Early.
func (g *Generation) TakeOwn(rank int, x *OwnReport, now time.Duration) (Verdict, error) {
	r := g.rounds
	if r == nil {
		if g.last >= 0 {
			return 0, ErrMixed
		}
		r = newRounds(g.cluster)
		r.open(&g.plans[g.newest%len(g.plans)], g.cluster.Collect)
	}
	if rank < 0 || rank >= len(g.cluster.Nodes) {
		return 0, fault("rank", "is %d; this generation has ranks 0 to %d", rank, len(g.cluster.Nodes)-1)
	}
	h, verdict, err := g.find(x.Plan)
	if err != nil || verdict == Old {
		return verdict, err
	}
	if newest := r.reported[rank]; x.Round < 0 || x.Round > newest+maxGap {
		return 0, fault("round", "is %d; the newest of rank %d is %d", x.Round, rank, newest)
	} else if x.Round <= newest {
		return Duplicate, nil
	}
	var f badinput.Faults
	h.check("", rank, &x.RankReport, &f)
	if !measure(x.Pause, maxSeconds) {
		f.Add("pause_seconds", "is %v; it must lie in 0..%v", x.Pause, float64(maxSeconds))
	}
	if err := asError(f); err != nil {
		return 0, err
	}
	waits := slices.ContainsFunc(r.waiting, func(a arrival) bool { return a.rank == rank })
	if _, busy := r.recorder.Share(rank); !busy || waits || x.Plan < r.handed[rank] {
		return Early, nil // it has handed in its share of that plan
	}
	g.rounds = r // only an accepted report changes anything
	r.reported[rank] = x.Round
	r.waiting = append(r.waiting, arrival{rank, now, *x})
	r.flush()
	return Accepted, nil
}

// flush hands the waiting reports to the open round until it is over.
func (r *rounds) flush() {
	for !r.over && len(r.waiting) > 0 && r.deliver(&r.waiting[0]) {
		r.waiting = r.waiting[1:]
	}
}

// Due says whether the open round of single ranks' reports is past its time limit, so that a call of Next at time now closes it.
func (g *Generation) Due(now time.Duration) bool {
	if g.rounds == nil || g.rounds.over {
		return false
	}
	t, limited := g.rounds.recorder.Limit()
	return limited && now > t
}

// Next returns the report of a round of single ranks' reports that is over by time now, nil if there is none. Call it
// after TakeOwn, and after the Hand that follows on a report, until it returns nil.
func (g *Generation) Next(now time.Duration) *cluster.Report {
	r := g.rounds
	if r == nil || r.over {
		return nil
	}
	r.flush()
	if g.Due(now) {
		r.recorder.Expire()
	}
	if _, r.over = r.recorder.Closed(); !r.over {
		return nil
	}
	report := r.recorder.Report()
	report.Plan = r.plan
	for i, size := range r.large {
		if n := &report.Nodes[i]; size > 0 {
			n.OOM, n.TooLarge = true, size
			n.Seconds = 0
		}
	}
	return report
}

// deliver hands an arrival to the open round; false if that is over.
func (r *rounds) deliver(a *arrival) bool {
	if _, closed := r.recorder.Closed(); closed {
		return false
	}
	if _, busy := r.recorder.Share(a.rank); !busy || a.Plan < r.handed[a.rank] {
		return true // its share was given up with an older round
	}
	if a.Samples == 0 {
		r.recorder.Lose(a.rank, a.at, a.OutOfMemory > 0)
	} else if r.recorder.Receive(a.rank, a.at, cluster.Gradient{Samples: a.Samples, Steps: a.MicroSteps, Seconds: a.Seconds + a.InputSeconds, Pause: a.Pause}) == 0 {
		return false // it came after the end
	}
	r.large[a.rank] = a.OutOfMemory
	r.handOut(a.rank, a.at)
	return true
}
