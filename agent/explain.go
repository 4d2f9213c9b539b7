package agent

import (
	"math"

	"evenkeel/cluster"
	"evenkeel/env"
)

// Explanation says why the agent chose a node's micro-batch: what was measured, how that
// changed its belief, and which alternatives it had. Values by objective are in the order
// of env.ObjectiveNames.
type Explanation struct {
	Round      int                     `json:"round"` // that the micro-batch is for, from 0
	Node       string                  `json:"node"`
	MicroBatch int                     `json:"micro_batch"` // 0: the node is absent
	Measured   *Measured               `json:"measured"`    // in the previous round; null, like the choices, if there was none
	Before     env.Belief              `json:"before"`
	After      env.Belief              `json:"after"`
	Weights    [env.Objectives]float64 `json:"weights"` // behind the choices; they sum to 1
	Chosen     *Choice                 `json:"chosen"`
	Model      *Choice                 `json:"model"`                  // the choice of the model alone
	Best       *Choice                 `json:"best"`                   // the network's choice, taken if it is better by enough; null: it was not used
	OutOfRange []OutOfRange            `json:"out_of_range,omitempty"` // why the network was not used
	Guarded    bool                    `json:"guarded,omitempty"`      // the network was overruled, as it has not shown that its rounds bring more than the model's
	Steady     bool                    `json:"steady,omitempty"`       // all shares follow average paces, with room for slow spells, as those would have brought more progress than the choices
	Rule       *RuleExplanation        `json:"rule,omitempty"`         // of the round, where it is free
	Part       *Part                   `json:"part,omitempty"`         // why the node is left out or on trial; null: it takes part as usual
	PassedOver string                  `json:"passed_over,omitempty"`  // impossible values in its report
}

// Part is the state of a node that is left out, is on trial, or was lost just now.
type Part struct {
	Why     string  `json:"why"`              // why it is left out: "silent", "too slow", "away", "out of memory"; or "takes part"
	Trial   bool    `json:"trial,omitempty"`  // it gets its least share in this round, as a test
	Lost    int     `json:"lost,omitempty"`   // successive gradients that did not come
	Since   int     `json:"since,omitempty"`  // round, from 1, in which it fell silent
	Cost    float64 `json:"cost,omitempty"`   // of its last loss or trial, in rounds of the others
	Next    int     `json:"next,omitempty"`   // round, from 1, of the next trial
	Unknown bool    `json:"unknown,omitzero"` // no accepted gradient of it is known
}

// Explain adds the control's decisions about a node to an explanation: Agent.Explain explains only sizes.
func (c *Control) Explain(e *Explanation, node int) {
	e.PassedOver = c.sieve.Why(node)
	n := &c.parts.nodes[node]
	why := c.LeftOut(node)
	trial := n.onTrial(c.parts.round)
	if why == TakesPart && !trial && n.lost == 0 {
		return
	}
	e.Part = &Part{Why: why.String(), Trial: trial, Lost: n.lost, Cost: n.cost, Unknown: !n.known}
	if trial {
		e.Part.Why = n.why.String()
	}
	if n.why == Silent {
		e.Part.Since = n.since
	}
	if (n.why == Silent || n.why == TooSlow) && !trial {
		e.Part.Next = max(n.next, c.parts.round+1)
	}
}

// Measured is a node's part of a report.
type Measured struct {
	Status   string  `json:"status"`
	Size     int     `json:"size"`
	Seconds  float64 `json:"seconds"` // for size samples; for a late node, so far
	Busy     float64 `json:"busy"`    // seconds spent so far on busy_size samples still under way
	BusySize int     `json:"busy_size"`
}

// Choice is an action with the values that the network expects of it.
type Choice struct {
	Action int                      `json:"action"` // index into env.Actions
	Trust  string                   `json:"trust"`
	Drift  float64                  `json:"drift"`
	Margin float64                  `json:"margin"`          // relative to the fleet's spread
	Q      *[env.Objectives]float32 `json:"q,omitempty"`     // by objective
	Value  float32                  `json:"value,omitempty"` // weighted
}

// OutOfRange is a feature outside its range in training.
type OutOfRange struct {
	Feature string   `json:"feature"`
	Value   *float32 `json:"value"` // null: NaN or infinite
	Low     float32  `json:"low"`   // in training
	High    float32  `json:"high"`  // the same
}

// RuleExplanation explains the choice of the round's rule.
type RuleExplanation struct {
	Chosen RuleValue  `json:"chosen"`
	Next   *RuleValue `json:"next"` // the best of the others; null: there are none
}

// RuleValue is a rule with its value relative to the mean over all rules.
type RuleValue struct {
	Quorum float64                 `json:"quorum"`
	Grace  float64                 `json:"grace"`
	Mean   [env.Objectives]float64 `json:"mean"`  // moving average
	Value  float64                 `json:"value"` // the same, weighted
}

// seen is what a decision was based on.
type seen struct {
	round   int
	nodes   []cluster.NodeReport // nil: there was no report
	before  []env.Belief
	weights [env.Objectives]float64
	sizes   []int // the plan's
}

func (s *seen) note(a *Agent, report *cluster.Report, sizes []int) {
	s.before, s.weights, s.sizes = s.before[:0], a.weights, sizes
	for i := range sizes {
		s.before = append(s.before, a.believes().Belief(i))
	}
	if report != nil {
		s.round, s.nodes = report.Round+1, append(s.nodes[:0], report.Nodes...)
	}
}

// Explain explains the last decision about a node, given by its index. Decide must have
// been called before.
func (a *Agent) Explain(node int) Explanation {
	s, after := &a.seen, a.believes().Belief(node)
	after.Ahead = a.tracker.Belief(node).Ahead
	e := Explanation{
		Round: s.round, Node: a.cluster.Nodes[node].Name, MicroBatch: s.sizes[node], Weights: s.weights,
		Before: s.before[node], After: after,
	}
	if s.nodes == nil {
		return e
	}
	r := &s.nodes[node]
	e.Measured = &Measured{r.Status.String(), r.Size, r.Seconds, r.Busy, r.BusySize}
	var q []float32
	if a.values != nil {
		record, row := &a.trained.Record, a.rows[node*env.Features:][:env.Features]
		e.OutOfRange = outside(row, record.Low, record.High, env.FeatureNames)
		if len(e.OutOfRange) == 0 {
			q = a.values.all(row)
			e.Best = a.choice(greedy(q, s.weights), q)
		}
	}
	e.Guarded, e.Steady = a.guarded(), a.steady.decided
	e.Chosen, e.Model = a.choice(a.actions[node], q), a.choice(a.model[node], q)
	if a.rule >= 0 {
		e.Rule = a.explainRule()
	}
	return e
}

func (a *Agent) choice(action int, q []float32) *Choice {
	x := &env.Actions[action]
	c := &Choice{Action: action, Trust: x.Trust.String(), Drift: x.Drift, Margin: x.Margin}
	if q != nil {
		own := [env.Objectives]float32(q[action*env.Objectives:]) // q is the next decision's too
		c.Q, c.Value = &own, value(q, action, a.seen.weights)
	}
	return c
}

func (a *Agent) explainRule() *RuleExplanation {
	e := &RuleExplanation{}
	means := a.believes().Means()
	worth := func(rule int) RuleValue {
		r := &cluster.Rules[rule]
		v := RuleValue{Quorum: r.Quorum, Grace: r.Grace, Mean: means[rule]}
		for o, w := range a.seen.weights {
			v.Value += float64(w * v.Mean[o]) // rounded: no fused multiply-add
		}
		return v
	}
	e.Chosen = worth(a.rule)
	for _, rule := range a.allowed {
		if rule == a.rule {
			continue
		}
		if v := worth(rule); e.Next == nil || v.Value > e.Next.Value {
			e.Next = &v
		}
	}
	return e
}

// outside lists the features of a row that are out of range.
func outside(row, low, high []float32, names []string) []OutOfRange {
	var out []OutOfRange
	wide := newBounds(low, high)
	for i := range row {
		if row[i] >= wide.low[i] && row[i] <= wide.high[i] {
			continue
		}
		o := OutOfRange{Feature: names[i], Low: low[i], High: high[i]}
		if v := row[i]; !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
			o.Value = &v
		}
		out = append(out, o)
	}
	return out
}
