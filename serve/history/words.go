package history

import (
	"fmt"
	"math"
	"strings"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
)

// list names some of many.
func list(names []string) string {
	if n := len(names); n > mostNamed+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), n-mostNamed)
	}
	return strings.Join(names, ", ")
}

// change is a node's last change of share worth telling of.
type change struct {
	plan     int // 0: none
	at       time.Duration
	from, to int
	why      agent.Why // it is left out, or tried again; TakesPart: neither
	trial    bool
	trials   int // rounds until the next trial; 0: not known
	first    bool
	profiled bool
	before   float64 // believed seconds for an even share at the change before; 0: not known
	after    float64
	size     int // samples measured in the newest round
	seconds  float64
}

// notable says whether a change of share is worth telling of.
func notable(from, to int) bool {
	return (from == 0) != (to == 0) || math.Abs(float64(to-from)) > max(1, 0.05*float64(from))
}

func (h *History) newChange(i, plan, to int, at time.Duration, report *cluster.Report, control *agent.Control, perf *cluster.Performance) change {
	n, before := &h.cluster.Nodes[i], &h.changes[i]
	c := change{
		plan: plan, at: at, from: before.to, to: to, why: h.out[i], trial: h.trial[i], first: report == nil, profiled: n.Profile != nil,
		before: before.after, after: n.Finish(*perf, max(h.even[i], 1)),
	}
	if h.paces[i].measured == 0 && n.Profile == nil {
		c.after = 0 // nothing but a guess
	}
	if report != nil && report.Nodes[i].Measured() {
		c.size, c.seconds = report.Nodes[i].Size, report.Nodes[i].Seconds
	}
	if to == 0 {
		var e agent.Explanation
		if control.Explain(&e, i); e.Part != nil && e.Part.Next > plan {
			c.trials = e.Part.Next - plan
		}
	}
	return c
}

// told is a ratio of times below which a pace counts as unchanged.
const told = 1.02

func (c *change) text() string {
	switch {
	case c.plan == 0:
		return ""
	case c.to == 0:
		text := "left out: " + reasons[c.why]
		if c.trials > 0 {
			text += fmt.Sprintf("; to be tried %s later", count(c.trials, "round"))
		}
		return text
	case c.trial:
		return fmt.Sprintf("on trial with %s: it was left out as %s", count(c.to, "sample"), c.why)
	case c.first && c.profiled:
		return fmt.Sprintf("%s at the start, by its profile and what was known of its pace", count(c.to, "sample"))
	case c.first:
		return fmt.Sprintf("%s at the start: it has no profile", count(c.to, "sample"))
	case c.from == 0:
		return fmt.Sprintf("takes part again, with %s", count(c.to, "sample"))
	}
	text := fmt.Sprintf("%d to %s: ", c.from, count(c.to, "sample"))
	if c.before == 0 {
		text += "its pace is known now"
	} else if ratio := c.after / c.before; c.to < c.from && ratio >= told || c.to > c.from && ratio <= 1/told {
		text += "it is " + pace(ratio)
	} else {
		text += "others' paces changed"
	}
	if c.seconds > 0 {
		text += fmt.Sprintf(" (%s for %s)", seconds(c.seconds), count(c.size, "sample"))
	}
	return text
}

// reasons say why a node is left out.
var reasons = map[agent.Why]string{
	agent.Away: "it is away", agent.TooSlow: "the others finish sooner without it", agent.Silent: "no gradient came",
	agent.NoMemory: "its memory does not hold its smallest micro-batch",
}

// pace says by how much a node takes longer, or less long.
func pace(ratio float64) string {
	switch {
	case ratio >= 1.5:
		return fmt.Sprintf("%.2g times as slow", ratio)
	case ratio > 1:
		return fmt.Sprintf("%.0f%% slower", 100*(ratio-1))
	case ratio > 1/1.5:
		return fmt.Sprintf("%.0f%% faster", 100*(1/ratio-1))
	}
	return fmt.Sprintf("%.2g times as fast", 1/ratio)
}

// seconds writes a time with three digits.
func seconds(s float64) string {
	switch {
	case s >= 100:
		return fmt.Sprintf("%.0f s", s)
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g µs", 1e6*s)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// arrivals counts the nodes that an older start did not have; 0 if there was none.
func arrivals(old, c *cluster.Cluster) int {
	if old == nil {
		return 0
	}
	known := map[string]bool{}
	for i := range old.Nodes {
		known[old.Nodes[i].Name] = true
	}
	came := 0
	for i := range c.Nodes {
		if !known[c.Nodes[i].Name] {
			came++
		}
	}
	return came
}

// Details say what a decision about a node rests on.
func Details(e *agent.Explanation) []string {
	d := []string{}
	say := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	m := e.Measured
	if m == nil {
		say("Nothing has been measured yet: its share follows from its profile, or is an equal one.")
		return d
	}
	switch m.Status {
	case cluster.In.String(), cluster.Refused.String():
		say("Newest round: %s for %s.", seconds(m.Seconds), count(m.Size, "sample"))
	default:
		say("Newest round: %s.", m.Status)
	}
	if e.PassedOver != "" {
		say("Ignored, as it is impossible: %s.", e.PassedOver)
	}
	say("Believed to take %.3g times as long as its profile or first measurement says, %.3g before; over the long run %.3g. One round's time is uncertain by %.1f%%.",
		e.After.Slowdown, e.Before.Slowdown, e.After.Level, 100*e.After.Deviation)
	if c := e.Chosen; c != nil {
		say("Chosen: %s, which moved the belief by %.0f%% of the difference, and a margin of %.2g deviations for noise.", c.Trust, 100*e.After.Gain, e.After.Margin)
	}
	if lag := e.After.Lag; lag != 0 {
		say("It changes gradually: planned for %+.1f%% beyond the belief.", 100*lag)
	}
	if e.Guarded {
		say("The network is not used: its recent rounds made less progress than the model's would have made.")
	}
	if e.Steady {
		say("All shares follow average paces, with room for slow spells: in recent rounds that made more progress than the choices would have made.")
	}
	if n := len(e.OutOfRange); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" and %d more", n-1)
		}
		say("The network is not used: outside its range of training: %q%s.", e.OutOfRange[0].Feature, more)
	}
	if p := e.Part; p != nil {
		say("Taking part: %s.", p.Why)
		if p.Lost > 0 {
			say("%s in a row did not come.", count(p.Lost, "gradient"))
		}
		if p.Cost > 0 {
			say("Waiting for it cost the others %.3g rounds the last time.", p.Cost)
		}
		if p.Next > e.Round {
			say("It is tried again in about %s.", count(p.Next-e.Round, "round"))
		}
	}
	return d
}
