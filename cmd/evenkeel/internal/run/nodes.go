package run

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
)

// mostRows is the number of nodes that are listed one by one; more are grouped by device.
const mostRows = 24

// Width of a bar; narrower ones are left out.
const (
	mostBar  = 20
	leastBar = 6
)

// Width reserved for a status, so that bars do not jump when one appears.
const (
	statusRoom  = len("out of memory")
	groupedRoom = len("12 late, 1 lost")
)

// fit fits a table into a width, 0 for any: the bars, in column at, take the space that is
// left. If that is too little, the bars are left out, then the columns in drop. rows makes
// the rows for the width of bars in w.bars.
func (w *watch) fit(width, at, status int, drop []int, columns []cli.Column, rows func() [][]string) []string {
	w.bars = mostBar
	if width == 0 {
		return cli.Table(columns, rows())
	}
	cells := rows()
	room := func() int {
		last := len(columns) - 1
		used := 2 * last
		for k, c := range columns {
			most := cli.Visible(c.Title)
			for _, r := range cells {
				most = max(most, cli.Visible(r[k]))
			}
			if k == last {
				most = max(most, status)
			}
			if used += most; k == at {
				used -= most
			}
		}
		return width - used
	}
	if w.bars = min(room(), mostBar); w.bars >= leastBar {
		return cli.Table(columns, rows())
	}
	remove := func(k int) {
		columns = slices.Delete(slices.Clone(columns), k, k+1)
		for i := range cells {
			cells[i] = slices.Delete(cells[i], k, k+1)
		}
	}
	remove(at)
	at, status = -1, 0
	for _, k := range drop {
		if room() >= 0 {
			break
		}
		remove(k)
	}
	return cli.Table(columns, cells)
}

// slowdowns are the believed slowdowns, safety margin included; nil for a node without a
// profile to compare with.
func (w *watch) slowdowns() []*float64 {
	perf, nominal := w.agent.Performance(), w.setup.cluster.Nominal()
	out := make([]*float64, len(perf))
	for i := range perf {
		if w.setup.cluster.Nodes[i].Profile != nil {
			v := perf[i].PerSample / nominal[i].PerSample
			out[i] = &v
		}
	}
	return out
}

// describe is a line about the run.
func (s *setup) describe() string {
	conditions := s.conditions.Name
	switch {
	case conditions == "" && reflect.ValueOf(s.conditions.Conditions).IsZero():
		conditions = "no disturbance"
	case conditions == "":
		conditions = "the file's own conditions"
	}
	batch := fmt.Sprint(s.cluster.GlobalBatch)
	if c := s.cluster.Choices; c.MostBatch > 0 {
		batch = fmt.Sprintf("%d to %d", c.LeastBatch, c.MostBatch)
	}
	return fmt.Sprintf("%s: %d nodes, %s, global batch %s, %s, seed %d", s.name, len(s.cluster.Nodes), s.cluster.Workload, batch, conditions, s.seed)
}

// nodes is the table of the newest round, in a width, 0 for any. With more nodes than rows
// they are grouped by device.
func (w *watch) nodes(rows, width int, p paint) []string {
	if nodes := w.setup.cluster.Nodes; len(nodes) <= min(rows, mostRows) {
		lines := w.byNode(width, p, true)
		other := func(n cluster.Node) bool { return !strings.HasPrefix(n.Name, n.Device) }
		if w.bars < leastBar && !slices.ContainsFunc(nodes, other) {
			// The names begin with the device, so the bars are worth more than the column.
			if short := w.byNode(width, p, false); w.bars >= leastBar {
				return short
			}
		}
		return lines
	}
	// With long statuses the highest slowdown is dropped, then the mean time, then the idle share.
	return w.fit(width, 3, groupedRoom, []int{7, 3, 4}, []cli.Column{
		cli.Left("device"), cli.Right("nodes"), cli.Right("sizes"), cli.Left("work"), cli.Right("mean"), cli.Right("slowest"), cli.Right("idle"),
		cli.Right("slowdown"), cli.Right("highest"), cli.Left("status"),
	}, func() [][]string { return w.eachDevice(p) })
}

// byNode is a table of the nodes, one a line. With long names the device is dropped, then the
// idle share.
func (w *watch) byNode(width int, p paint, device bool) []string {
	columns := []cli.Column{
		cli.Left("node"), cli.Left("device"), cli.Right("size"), cli.Left(""), cli.Left("works"), cli.Right("time"),
		cli.Right("idle"), cli.Right("slowdown"), cli.Left("status"),
	}
	if w.round.Plan.Collect.Timed() { // what a node hands in is then not its size
		columns = slices.Insert(columns, len(columns)-1, cli.Right("done"))
	}
	if device {
		return w.fit(width, 4, statusRoom, []int{1, 4}, columns, func() [][]string { return w.eachNode(p) })
	}
	return w.fit(width, 3, statusRoom, []int{4}, slices.Delete(columns, 1, 2), func() [][]string {
		rows := w.eachNode(p)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 1, 2)
		}
		return rows
	})
}

func (w *watch) eachNode(p paint) [][]string {
	c, report := w.setup.cluster, w.round.Report
	slow := w.slowdowns()
	var rows [][]string
	for i := range c.Nodes {
		r := &report.Nodes[i]
		time, bar := "", ""
		if r.Status != cluster.Absent && r.Seconds > 0 {
			time, bar = cli.Seconds(r.Seconds), w.bar(r.Seconds, p)
		}
		idle := ""
		if r.Status != cluster.Absent {
			idle = cli.Percent(share(r.Idle, report.Wait.Seconds()))
		}
		slowdown := "-"
		if slow[i] != nil {
			slowdown = fmt.Sprintf("%.2f", *slow[i])
		}
		row := []string{
			c.Nodes[i].Name, c.Nodes[i].Device, inSteps(&c.Nodes[i], w.round.Plan.Sizes[i]), change(w.before[i], w.round.Plan.Sizes[i], p), bar, time, idle,
			slowdown,
		}
		if w.round.Plan.Collect.Timed() {
			row = append(row, w.handedIn(i))
		}
		rows = append(rows, append(row, w.status(i, p)))
	}
	return rows
}

// bar shows the share of the round in which a node worked, to an eighth of a character.
func (w *watch) bar(s float64, p paint) string {
	const parts = "▏▎▍▌▋▊▉"
	eighths := int(math.Round(8 * float64(w.bars) * min(share(s, w.round.Report.Wait.Seconds()), 1)))
	full, rest := eighths/8, eighths%8
	bar := strings.Repeat("█", full)
	if rest > 0 {
		bar += string([]rune(parts)[rest-1])
		full++
	}
	return bar + p.faint(strings.Repeat("·", w.bars-full))
}

func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// change marks a size that differs from the round before.
func change(before, now int, p paint) string {
	switch {
	case before == 0 || before == now:
		return " "
	case now > before:
		return p.good("▲")
	}
	return p.warn("▼")
}

func status(r *cluster.NodeReport, p paint) string {
	switch {
	case r.OOM:
		return p.bad("out of memory")
	case r.Status == cluster.In && r.Aged > 0:
		return p.warn("aged")
	case r.Status == cluster.In:
		return "in"
	case r.Status == cluster.Lost:
		return p.bad("lost")
	}
	return p.warn(r.Status.String())
}

// group sums up the nodes of one device in the newest round.
type group struct {
	nodes, taking, least, most int
	seconds, idle              float64
	slowest, slowdown, highest float64
	measured, profiled         int
	statuses                   map[string]int
}

func (w *watch) eachDevice(p paint) [][]string {
	c, report := w.setup.cluster, w.round.Report
	slow := w.slowdowns()
	groups := map[string]*group{}
	var order []string
	for i := range c.Nodes {
		n, r := &c.Nodes[i], &report.Nodes[i]
		g := groups[n.Device]
		if g == nil {
			g = &group{least: math.MaxInt, statuses: map[string]int{}}
			groups[n.Device], order = g, append(order, n.Device)
		}
		g.nodes++
		if s := slow[i]; s != nil {
			g.profiled++
			g.slowdown, g.highest = g.slowdown+*s, max(g.highest, *s)
		}
		if s := w.status(i, p); s != "in" {
			g.statuses[s]++
		}
		if r.Status == cluster.Absent {
			continue
		}
		g.taking++
		g.least, g.most = min(g.least, w.round.Plan.Sizes[i]), max(g.most, w.round.Plan.Sizes[i])
		g.idle += share(r.Idle, report.Wait.Seconds())
		if r.Seconds > 0 {
			g.measured++
			g.seconds, g.slowest = g.seconds+r.Seconds, max(g.slowest, r.Seconds)
		}
	}
	var rows [][]string
	for _, d := range order {
		rows = append(rows, groups[d].row(d, w, p))
	}
	return rows
}

func (g *group) row(device string, w *watch, p paint) []string {
	nodes, sizes, bar, mean, slowest, idle := fmt.Sprint(g.nodes), "", "", "", "", ""
	if g.taking < g.nodes {
		nodes = fmt.Sprintf("%d of %d", g.taking, g.nodes)
	}
	if g.taking > 0 {
		if sizes = fmt.Sprint(g.least); g.most > g.least {
			sizes = fmt.Sprintf("%d-%d", g.least, g.most)
		}
		idle = cli.Percent(g.idle / float64(g.taking))
	}
	if g.measured > 0 {
		s := g.seconds / float64(g.measured)
		bar, mean, slowest = w.bar(s, p), cli.Seconds(s), cli.Seconds(g.slowest)
	}
	slowdown, highest := "-", "-"
	if g.profiled > 0 {
		slowdown, highest = fmt.Sprintf("%.2f", g.slowdown/float64(g.profiled)), fmt.Sprintf("%.2f", g.highest)
	}
	var others []string
	all := []string{p.warn(agent.TooSlow.String()), p.warn(agent.Silent.String())}
	for _, r := range []*cluster.NodeReport{
		{Status: cluster.In, Aged: 1}, {Status: cluster.Late}, {Status: cluster.Refused}, {Status: cluster.Lost}, {Status: cluster.Lost, OOM: true}, {Status: cluster.Absent},
	} {
		all = append(all, status(r, p))
	}
	for _, s := range all {
		if k := g.statuses[s]; k > 0 {
			others = append(others, fmt.Sprintf("%d %s", k, s))
		}
	}
	if len(others) == 0 {
		others = []string{"all in"}
	}
	return []string{
		device, nodes, sizes, bar, mean, slowest, idle,
		slowdown, highest, strings.Join(others, ", "),
	}
}
