package serve

import (
	"errors"
	"fmt"
	"time"

	"evenkeel/agent"
	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/serve/history"
)

// errGeneration says that a report does not belong to the newest start of the process group.
var errGeneration = errors.New("serve: this generation is not the newest; register the process group")

// generation is the newest start of a job's process group: its rounds, the controller that tunes them, and the newest sizes.
// The job's lock guards it.
type generation struct {
	number  int              // of starts so far; the other fields are empty before the first
	id      string           // under which it was registered; "": it has ended, and the same id may register again
	running Settings         // as it was registered
	ranks   []live.Rank      // as it was registered
	rounds  *live.Generation // nil: no process group runs
	agent   *agent.Agent
	control *agent.Control
	plan    cluster.Plan // the newest
	sum     uint64       // of its shares, where there is a journal
	sizes   export.Sizes
	waiting *cluster.Report      // for its decision
	ran     map[int]cluster.Plan // newest plans by number, kept if decisions are reported (Config.Each)
	newest  cluster.Report
	limits  map[int]int // largest micro-batches by rank that were changed since the last decision
	problem string      // why there are no new sizes
}

// runs says whether a process group has started.
func (g *generation) runs() bool { return g.rounds != nil }

// nodes are the ranks as the controller knows them.
func (g *generation) nodes() []cluster.Node { return g.rounds.Cluster().Nodes }

// end forgets the process group. What was learnt stays unknown until the ranks register anew, under the old id if they like.
func (g *generation) end() {
	g.rounds, g.agent, g.control, g.waiting, g.id, g.ranks = nil, nil, nil, nil, "", nil
}

// check says whether a report of this generation and plan can be judged, and if not, how it is counted. A plan that was never handed out means that the
// journal was set back, by a backup or by a NATS server that lost what it had acknowledged: the ranks register again under the known id, and go on
// with the sizes that are known.
func (g *generation) check(number, plan int) (count string, err error) {
	switch {
	case !g.runs() || number != g.number:
		return "unknown generation", fmt.Errorf("%w: it is %d, the newest is %d", errGeneration, number, g.number)
	case plan > g.plan.Number:
		return "unknown plan", fmt.Errorf("%w: plan %d was not handed out; the newest is %d", errGeneration, plan, g.plan.Number)
	}
	return "", nil
}

// hand makes a plan the newest.
func (g *generation) hand(plan cluster.Plan, at time.Duration, c *Config) {
	plan = plan.Own()
	g.plan = plan
	if c.Journal != nil {
		g.sum = sum(&plan)
	}
	if c.Each != nil {
		g.ran[plan.Number] = plan
		delete(g.ran, plan.Number-live.Behind-1)
	}
	g.rounds.Hand(plan, at)
	g.sizes = export.FromPlan(g.rounds.Cluster(), g.number, plan, func(i int) string { return g.control.LeftOut(i).String() })
}

// took remembers the report of the newest round, which is valid until the next one.
func (g *generation) took(report *cluster.Report) {
	nodes := append(g.newest.Nodes[:0], report.Nodes...)
	g.newest = *report
	g.newest.Nodes = nodes
}

// report is what a rank said of the newest round; zero if that is not known.
func (g *generation) report(rank int) cluster.NodeReport {
	if rank >= len(g.newest.Nodes) {
		return cluster.NodeReport{}
	}
	return g.newest.Nodes[rank]
}

// efficiency is what a sample of the newest round is worth to the model, 1 before the first.
func (g *generation) efficiency() float64 {
	if g.newest.Counted == 0 {
		return 1
	}
	return cluster.Efficiency(g.agent.NoiseScale(), float64(g.rounds.Cluster().GlobalBatch), g.newest.Counted)
}

// byRank finds the ranks of limits that are given by name.
func (g *generation) byRank(limits map[string]int) (map[int]int, error) {
	index := map[string]int{}
	if g.runs() {
		for i := range g.nodes() {
			index[g.nodes()[i].Name] = i
		}
	}
	var faults live.Faults
	found := make(map[int]int, len(limits))
	for name, most := range limits {
		i, ok := index[name]
		switch {
		case !ok:
			faults = append(faults, live.Fault{Path: "limits", Text: fmt.Sprintf("no rank is called %.80q", name)})
		case most < g.nodes()[i].LeastStep() || most > cluster.MaxGlobalBatch:
			faults = append(faults, live.Fault{Path: "limits", Text: fmt.Sprintf("%.80q: is %d; it must lie in %d..%d", name, most, g.nodes()[i].LeastStep(), cluster.MaxGlobalBatch)})
		}
		found[i] = most
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return found, nil
}

// bound sets the largest micro-batches of ranks.
func (g *generation) bound(limits map[int]int) {
	for rank, most := range limits {
		g.control.Bound(rank, most)
		if g.limits == nil {
			g.limits = map[int]int{}
		}
		g.limits[rank] = most
	}
}

// describe fills in what a job's state says of its process group.
func (g *generation) describe(s *JobState, ranks bool, of *history.History) {
	s.Generation, s.Plan, s.Problem, s.Efficiency, s.Ranks = g.number, g.plan.Number, g.problem, 1, []RankState{}
	if !g.runs() {
		return
	}
	s.NoiseScale, s.Efficiency, s.RankCount, s.Absurd = g.agent.NoiseScale(), g.efficiency(), len(g.nodes()), int64(history.Strange(g.control))
	perf := g.agent.Performance()
	for i := range g.nodes() {
		n, leftOut, said := &g.nodes()[i], g.sizes.Nodes[i].LeftOut, g.report(i)
		if leftOut != "" {
			s.LeftOut++
		}
		if ranks {
			cause, remedy := of.Cause(i)
			s.Ranks = append(s.Ranks, RankState{
				Name: n.Name, Device: n.Device, Profiled: n.Profile != nil, Share: g.plan.Sizes[i], MicroBatch: n.Full(),
				Seconds: said.Seconds - said.Input, Input: said.Input, Cause: cause, Remedy: remedy, PerSample: perf[i].PerSample, LeftOut: leftOut,
			})
		}
	}
}
