package run

import (
	"encoding/json"
	"fmt"
	"strconv"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/env"
	"evenkeel/internal/badinput"
)

// Limits of --explain; a run log holds everything.
const (
	mostReasons   = 20     // rounds, as text
	mostExplained = 10_000 // rounds in the JSON document, which is kept in memory
)

// reasons collects the explanations of a node's sizes.
type reasons struct {
	node         int
	all          []agent.Explanation // the first ones, and the newest
	last, before agent.Explanation
	lines        []string // text about unusual rounds
	unusual      int      // rounds
	printed      bool     // last is among lines
}

// findNode is the index of a node given by name or number.
func findNode(c *cluster.Cluster, node string) (int, error) {
	known := make([]string, len(c.Nodes))
	for i := range c.Nodes {
		if known[i] = c.Nodes[i].Name; known[i] == node {
			return i, nil
		}
	}
	if i, err := strconv.Atoi(node); err == nil && i >= 0 && i < len(known) {
		return i, nil
	}
	return 0, badinput.Errorf("--explain: no node %q%s (known: %s to %s, or a number from 0 to %d)", node, cli.DidYouMean(node, known), known[0], known[len(known)-1], len(known)-1)
}

// add records the newest explanation and returns it for the run log.
func (r *reasons) add(e agent.Explanation) (json.RawMessage, error) {
	r.before, r.last, r.printed = r.last, e, false
	r.all = append(r.all[:min(len(r.all), mostExplained-1)], e)
	if unusual(&e, &r.before) {
		if r.unusual++; r.unusual <= mostReasons {
			r.print()
		}
	}
	return json.Marshal(e)
}

func (r *reasons) print() {
	r.lines, r.printed = append(append(r.lines, reason(&r.last, r.before.MicroBatch)...), ""), true
}

// text is what is printed at the end of a run.
func (r *reasons) text() []string {
	if !r.printed {
		r.print()
	}
	about := "the unusual rounds, and the last"
	if r.unusual > mostReasons {
		about = fmt.Sprintf("the first %d of %d unusual rounds, and the last; --json and --log keep all", mostReasons, r.unusual)
	}
	return append([]string{"", fmt.Sprintf("Why %s got its sizes: %s.", r.last.Node, about), ""}, r.lines[:len(r.lines)-1]...)
}

// unusual reports whether anything but the filtering of a measurement happened. If it goes
// on for several rounds, only the first counts.
func unusual(e, before *agent.Explanation) bool {
	if e.Measured == nil || e.PassedOver != before.PassedOver || standing(e) != standing(before) || pausing(e) != pausing(before) {
		return true
	}
	type kind struct {
		status, chosen, model string
		used                  bool
	}
	of := func(e *agent.Explanation) kind {
		if e.Measured == nil {
			return kind{cluster.In.String(), env.Filter.String(), env.Filter.String(), true}
		}
		return kind{e.Measured.Status, e.Chosen.Trust, e.Model.Trust, len(e.OutOfRange) == 0}
	}
	switch now := of(e); {
	case e.Chosen.Trust == env.Jump.String() || e.Chosen.Trust == env.Return.String():
		return true
	case now == kind{cluster.In.String(), env.Filter.String(), env.Filter.String(), true}:
		return e.Rule != nil && before.Rule != nil && (e.Rule.Chosen.Quorum != before.Rule.Chosen.Quorum || e.Rule.Chosen.Grace != before.Rule.Chosen.Grace)
	default:
		return now != of(before)
	}
}

// standing is how a node stands, without what changes in every round.
func standing(e *agent.Explanation) agent.Part {
	if e.Part == nil {
		return agent.Part{}
	}
	return agent.Part{Why: e.Part.Why, Trial: e.Part.Trial, Lost: e.Part.Lost}
}

// pausing says whether a pause is announced, and whether one was due.
func pausing(e *agent.Explanation) [2]bool {
	return [2]bool{e.After.Pause.Announced > 0, e.After.Pause.Due > 0}
}

// part says why a node is left out, tried or watched.
func part(e *agent.Explanation) []string {
	p := e.Part
	if p == nil {
		return nil
	}
	var text string
	losses := ""
	if p.Lost > 0 {
		losses = fmt.Sprintf("%s in a row did not come", cli.Count(p.Lost, "gradient"))
	}
	switch {
	case p.Trial:
		text = "on trial with its least share: left out as " + p.Why
		if losses != "" {
			text += ", " + losses
		}
	case p.Why == agent.TakesPart.String():
		text = "yes, though " + losses + ": most hangs end with a restart"
	case p.Why == agent.Silent.String():
		text = fmt.Sprintf("left out as silent since round %d: %s", p.Since, losses)
		if losses == "" {
			text = fmt.Sprintf("left out as silent since round %d", p.Since)
		}
	case p.Why == agent.TooSlow.String():
		text = "left out as too slow: the others finish sooner without it"
	default:
		text = "left out as " + p.Why
	}
	if p.Unknown {
		text += "; it never handed in anything"
	}
	if p.Next > 0 {
		text += fmt.Sprintf("; to be tried in round %d", p.Next)
		if p.Cost > 0 {
			text += fmt.Sprintf(", as the last time cost the others %.3g rounds", p.Cost)
		}
	}
	return []string{"  taking part  " + text}
}

// reason is an explanation as text.
func reason(e *agent.Explanation, sizeBefore int) []string {
	head := fmt.Sprintf("round %d: %s", e.Round+1, cli.Count(e.MicroBatch, "sample"))
	if e.Measured == nil {
		return append([]string{head + ", from its profile and memory: nothing was measured yet"}, part(e)...)
	}
	update := "update"
	if e.Measured.Status == cluster.Late.String() {
		update = "guess " // how long it still takes, and whether the node is slower now
	}
	lines := []string{
		fmt.Sprintf("%s (%d before)", head, sizeBefore),
	}
	lines = append(lines, part(e)...)
	if e.PassedOver != "" {
		lines = append(lines, "  ignored      "+e.PassedOver)
	}
	lines = append(lines,
		"  measured  "+measured(e),
		fmt.Sprintf("  belief    slowdown %.3f -> %.3f, variance %.2g -> %.2g of a measurement's; long-run level %.3f; noise %s",
			e.Before.Slowdown, e.After.Slowdown, e.Before.Variance, e.After.Variance, e.After.Level, cli.Percent(e.After.Deviation)),
		fmt.Sprintf("  %s    %s, gain %.2f, margin of %.2f deviations", update, e.Chosen.Trust, e.After.Gain, e.After.Margin),
	)
	if a := &e.After; a.Doubt > 0 {
		lines = append(lines, fmt.Sprintf("  no profile: %s of its time is overhead, give or take %s", cli.Percent(a.Overhead), cli.Percent(a.Doubt)))
	}
	if lag := e.After.Lag; lag != 0 {
		lines = append(lines, fmt.Sprintf("  changing  gradually: planned for %s more than the slowdown", cli.Percent(lag)))
	}
	if a := &e.After.Ahead; a.Chance > 0.02 || a.Ready {
		text := fmt.Sprintf("  ahead     a slow spell begins with %s: %.2f times as slow, for %.1f rounds; %s came when they should", cli.Percent(a.Chance), a.Slowdown, a.Rounds, cli.Percent(a.Came))
		if a.Ready {
			text += "; the share leaves room for it"
		}
		lines = append(lines, text)
	}
	if p := &e.After.Pause; p.Due > 0 {
		lines = append(lines, fmt.Sprintf("  paused    for %.3g s, of %.3g s announced", p.Took, p.Due))
	}
	if p := &e.After.Pause; p.Announced > 0 {
		lines = append(lines, fmt.Sprintf("  announced a pause of %.3g s; the share leaves room for %.3g s, as %s of earlier ones came", p.Announced, p.Room, cli.Percent(p.Kept)))
	}
	if e.Guarded {
		lines = append(lines, "  network   not used: in its last rounds its choices made no more progress than the model's would have")
	}
	if e.Steady {
		lines = append(lines, "  steady    all shares follow average paces, with room for slow spells: in the last rounds that made more progress than the choices would have")
	}
	lines = append(lines, outOfRange(e.OutOfRange)...)
	for _, l := range values(e) {
		lines = append(lines, "  "+l)
	}
	return lines
}

// measured describes the outcome of the node's work in the round before.
func measured(e *agent.Explanation) string {
	m := e.Measured
	text := m.Status
	if m.Seconds > 0 && (text == cluster.In.String() || text == cluster.Refused.String()) {
		off := (e.After.Newest/e.Before.Slowdown - 1) / e.After.Deviation
		text += fmt.Sprintf(", %s for %s: slowdown %.3f, believed %.3f (%+.1f deviations)",
			cli.Seconds(m.Seconds), cli.Count(m.Size, "sample"), e.After.Newest, e.Before.Slowdown, off)
	}
	if m.BusySize > 0 {
		text += fmt.Sprintf(", %s into work on %s, %s to go", cli.Seconds(m.Busy), cli.Count(m.BusySize, "sample"), cli.Seconds(e.After.Left))
	}
	return text
}

// outOfRange explains why the network was not used.
func outOfRange(out []agent.OutOfRange) []string {
	if len(out) == 0 {
		return nil
	}
	value := "NaN"
	if out[0].Value != nil {
		value = fmt.Sprintf("%.3g", *out[0].Value)
	}
	more := ""
	if len(out) > 1 {
		more = fmt.Sprintf(", and %d more", len(out)-1)
	}
	return []string{fmt.Sprintf("  network   not used: %q is %s, in training %.3g to %.3g%s", out[0].Feature, value, out[0].Low, out[0].High, more)}
}

// values is the table of the choice and its alternatives.
func values(e *agent.Explanation) []string {
	columns := []cli.Column{cli.Left(""), cli.Left("")}
	for _, name := range env.ObjectiveNames {
		columns = append(columns, cli.Right(name))
	}
	columns = append(columns, cli.Right("weighted"))
	var rows [][]string
	action := func(name string, c *agent.Choice) {
		text := c.Trust
		if c.Trust == env.Filter.String() {
			text += fmt.Sprintf(" %g", c.Drift)
		}
		row := make([]string, len(columns))
		row[0], row[1] = name, fmt.Sprintf("%s, margin %g", text, c.Margin)
		if c.Q != nil {
			for o, q := range c.Q {
				row[2+o] = fmt.Sprintf("%+.4f", q)
			}
			row[len(row)-1] = fmt.Sprintf("%+.4f", c.Value)
		}
		rows = append(rows, row)
	}
	rule := func(name string, v *agent.RuleValue) {
		if v == nil {
			return
		}
		row := []string{name, cluster.Rule{Quorum: v.Quorum, Grace: v.Grace}.String()}
		for _, m := range v.Mean {
			row = append(row, fmt.Sprintf("%+.4f", m))
		}
		rows = append(rows, append(row, fmt.Sprintf("%+.4f", v.Value)))
	}
	action("chosen", e.Chosen)
	action("model", e.Model)
	if e.Best != nil && e.Best.Action != e.Chosen.Action {
		action("best", e.Best) // but not by enough
	}
	if e.Rule != nil {
		rule("rule", &e.Rule.Chosen)
		rule("next", e.Rule.Next)
	}
	return cli.Table(columns, rows)
}
