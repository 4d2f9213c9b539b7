package history

import (
	"fmt"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
)

// Details say what a decision about a node rests on.
func Details(e *agent.Explanation) []string {
	d := []string{}
	say := func(format string, args ...any) { d = append(d, fmt.Sprintf(format, args...)) }
	m := e.Measured
	if m == nil {
		say("Nothing was measured yet: its share follows from its profile, or is an even one.")
		return d
	}
	switch m.Status {
	case cluster.In.String(), cluster.Refused.String():
		say("Newest round: %s for %s.", seconds(m.Seconds), count(m.Size, "sample"))
	default:
		say("Newest round: %s.", m.Status)
	}
	if e.PassedOver != "" {
		say("Passed over, as it cannot be: %s.", e.PassedOver)
	}
	say("Believed to take %.3g times as long as its profile or first measurement says, %.3g before; over the long run %.3g. One round's time is uncertain by %.1f%%.",
		e.After.Slowdown, e.Before.Slowdown, e.After.Level, 100*e.After.Deviation)
	if c := e.Chosen; c != nil {
		say("Chosen: %s, which moved the belief by %.0f%% of what was new, and a margin of %.2g deviations for noise.", c.Trust, 100*e.After.Gain, e.After.Margin)
	}
	if lag := e.After.Lag; lag != 0 {
		say("It changes gradually: planned for %+.1f%% beyond the belief.", 100*lag)
	}
	if e.Guarded {
		say("The network is not heeded: its rounds of late were longer than the model's would have been.")
	}
	if n := len(e.OutOfRange); n > 0 {
		say("The network is not used: %q is outside what it saw in training, and %d more.", e.OutOfRange[0].Feature, n-1)
	}
	if p := e.Part; p != nil {
		say("Taking part: %s.", p.Why)
		if p.Lost > 0 {
			say("%s in a row did not come.", count(p.Lost, "gradient"))
		}
		if p.Cost > 0 {
			say("The last time that it was waited for cost the others %.3g rounds.", p.Cost)
		}
		if p.Next > e.Round {
			say("It is tried again in about %s.", count(p.Next-e.Round, "round"))
		}
	}
	return d
}
