package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"evenkeel/agent"
	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/memory"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/internal/runlog"
)

// readLog returns the performance parameters that a run log has measured of the nodes of c
// (nil: the log's own cluster).
func readLog(a *cli.App, path string, c *cluster.Cluster) (export.Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return export.Run{}, cli.FileError(err)
	}
	defer f.Close()
	r, err := runlog.NewReader(f)
	if err != nil {
		return export.Run{}, fmt.Errorf("%s: %w", path, err)
	}
	l := &logged{path: path, given: c}
	if r.Cluster != nil {
		if err := l.begin(r.Cluster); err != nil {
			return export.Run{}, err
		}
	}
	var t tally
	var last *runlog.Entry
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return export.Run{}, fmt.Errorf("%s: %w", path, err)
		}
		if err := a.Ctx.Err(); err != nil {
			return export.Run{}, err
		}
		if e.Start != nil {
			if err := l.begin(r.Cluster); err != nil {
				return export.Run{}, err
			}
			continue
		}
		t.add(&e.Report)
		l.add(e)
		last = e
	}
	if last == nil {
		return export.Run{}, badinput.Errorf("%s: the log has no rounds", path)
	}
	if r.Cut {
		warnCut(a, path)
	}
	c = l.cluster
	if err := t.failure(r.Cluster); err != nil {
		return export.Run{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := judge(a, path, c, l.observer); err != nil {
		return export.Run{}, err
	}
	warnSilent(a, path, silent(last, r.Cluster, c))
	settleLimits(a, path, c, l.limits, l.from)
	if r.Header.Source != runlog.Live {
		a.Log.Warn().Msgf("%s is the log of a simulated run, seed %d: the sizes suit its nodes, not those of a real job", path, r.Header.Seed)
	}
	end := export.Run{Cluster: c, GlobalBatch: c.GlobalBatch, NoiseScale: l.observer.NoiseScale(), Performance: l.observer.Performance()}
	if c == r.Cluster {
		deadlineOf(c, &last.Collect)
	}
	if free(c) {
		end.GlobalBatch = export.ChosenBatch(c, last.Sizes)
	}
	return end, nil
}

// deadlineOf gives c the deadline of a logged round, which a flag may have set instead of the
// file. One that follows from the predicted finish time follows from the new shares.
func deadlineOf(c *cluster.Cluster, logged *cluster.Collect) {
	q := &c.Collect
	q.Deadline, q.DeadlineShare, q.AutoDeadline = logged.Deadline, logged.DeadlineShare, logged.AutoDeadline
	q.Reserve, q.Overtime, q.Whole = logged.Reserve, logged.Overtime, logged.Whole
	if q.AutoDeadline || q.DeadlineShare > 0 {
		q.Deadline = 0
	}
}

// logged is what a log has shown of the nodes.
type logged struct {
	path     string
	given    *cluster.Cluster // nil: the log's own
	cluster  *cluster.Cluster
	from     []int // which node of the log each is
	nodes    []cluster.NodeReport
	observer *agent.Observer
	limits   *memory.Learner
}

// begin takes in the cluster of the rounds that follow; what earlier ones showed is of another.
func (l *logged) begin(c *cluster.Cluster) (err error) {
	if l.cluster = l.given; l.given == nil {
		l.cluster = c
	}
	l.from, err = match(l.path, c, l.cluster)
	l.nodes, l.observer, l.limits = make([]cluster.NodeReport, len(l.cluster.Nodes)), agent.NewObserver(l.cluster), memory.New(c)
	return err
}

// add takes in a round.
func (l *logged) add(e *runlog.Entry) {
	for i, k := range l.from {
		if k >= 0 {
			l.nodes[i] = e.Report.Nodes[k]
		}
	}
	own, plan := e.Report, e.Plan()
	own.Nodes = l.nodes
	l.observer.Add(&own)
	l.limits.Observe(&e.Report, e.Sizes, plan.Beyond())
}

// settleLimits lowers the limits of c's nodes to those learnt from the log, and names the nodes that do
// not hold their least size. from says which node of the log each is.
func settleLimits(a *cli.App, path string, c *cluster.Cluster, limits *memory.Learner, from []int) {
	limits.Settle()
	var full []string
	for i, k := range from {
		if k < 0 {
			continue
		}
		if n := &c.Nodes[i]; limits.Learnt(k) > 0 {
			n.Limit = min(n.Limit, max(limits.Learnt(k), n.LeastStep()))
		}
		if limits.Out(k) {
			full = append(full, c.Nodes[i].Name)
		}
	}
	if len(full) > 0 {
		a.Log.Warn().Msgf("when %s ended, the memory of %s did not hold the smallest micro-batch; the sizes include it nevertheless: leave it out, lower micro_batch.least, or give more memory", path, some(full))
	}
}

// silent names the nodes of c that a logged round of another cluster left out because no
// gradient came from them.
func silent(e *runlog.Entry, logged, c *cluster.Cluster) []string {
	var names []string
	for _, o := range e.LeftOut {
		if name := logged.Nodes[o.Node].Name; o.Why == agent.Silent.String() && slices.ContainsFunc(c.Nodes, func(n cluster.Node) bool { return n.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// warnSilent names the nodes that a run left out when it ended because no gradient came from them.
// The sizes have a share for each: whether the node is back, only its owner knows.
func warnSilent(a *cli.App, run string, names []string) {
	if len(names) > 0 {
		a.Log.Warn().Msgf("when %s ended, no gradient had come from %s; the sizes include it nevertheless", run, some(names))
	}
}

// match finds the nodes of c in a log's cluster by their names; -1: the log does not have it.
// Those found get the log's profile and link, which its times refer to.
func match(path string, logged, c *cluster.Cluster) ([]int, error) {
	if c.Workload != logged.Workload {
		return nil, badinput.Errorf("%s is of the workload %s, the cluster's is %s: times of one say nothing of the other; give the log of a run of %s, or leave --log out",
			path, logged.Workload, c.Workload, c.Workload)
	}
	index := make(map[string]int, len(logged.Nodes))
	for k := range logged.Nodes {
		index[logged.Nodes[k].Name] = k
	}
	from, found := make([]int, len(c.Nodes)), 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		k, ok := index[n.Name]
		if !ok {
			from[i] = -1
			continue
		}
		l := &logged.Nodes[k]
		if l.Device != n.Device {
			return nil, badinput.Errorf("%s is of another cluster: its node %s has the device %s, yours has %s; give the log of a run on this cluster, or leave --cluster out",
				path, n.Name, l.Device, n.Device)
		}
		from[i], n.Profile, n.Network = k, l.Profile, l.Network
		found++
	}
	if found == 0 {
		return nil, badinput.Errorf("%s is of another cluster: its nodes have other names (the first is %s, yours is %s); give the log of a run on this cluster, or leave --cluster out",
			path, logged.Nodes[0].Name, c.Nodes[0].Name)
	}
	return from, nil
}

// spell is the slowdown over the long-run level from which export warns.
const spell = 1.25

// judge says which sizes do not rest on the log, or on an unusual time in it, and refuses a
// node of which nothing at all is known.
func judge(a *cli.App, path string, c *cluster.Cluster, m *agent.Observer) error {
	var unseen, slow []string
	for i := range c.Nodes {
		switch n := &c.Nodes[i]; {
		case m.Rounds(i) == 0 && n.Profile == nil:
			return badinput.Errorf("%s measured nothing of %s, which has no profile either: nothing is known of its speed; give a log of rounds in which the node delivered, or its profile",
				path, n.Name)
		case m.Rounds(i) == 0:
			unseen = append(unseen, n.Name)
		case m.Slowed(i) > spell:
			slow = append(slow, fmt.Sprintf("%s (%.1f times)", n.Name, m.Slowed(i)))
		}
	}
	if len(unseen) > 0 {
		a.Log.Warn().Msgf("%s measured nothing of %s: sizes by the profile", path, some(unseen))
	}
	if len(slow) > 0 {
		a.Log.Warn().Msgf("slower than usual when %s ended: %s; the sizes follow their usual speed", path, some(slow))
	}
	return nil
}

// some names the first few.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
