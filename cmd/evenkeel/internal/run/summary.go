package run

import (
	"fmt"
	"maps"
	"slices"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/env"
)

// document is the summary as JSON.
type document struct {
	Cluster     string             `json:"cluster"`
	Workload    string             `json:"workload"`
	Nodes       int                `json:"nodes"`
	GlobalBatch int                `json:"global_batch"`                  // the cluster's
	ChosenBatch int                `json:"chosen_global_batch,omitempty"` // of the last round, where the agent chooses
	Conditions  string             `json:"conditions"`                    // "": the cluster file's own
	Seed        uint64             `json:"seed"`
	Policy      string             `json:"policy"`
	Weights     cluster.Objectives `json:"weights"`
	Rounds      int                `json:"rounds"` // done
	Interrupted bool               `json:"interrupted"`
	Results     []result           `json:"results"`
	Rules       map[string]int     `json:"rules,omitempty"`            // rounds under each, if the policy chose the rule
	Deadline    float64            `json:"deadline_seconds,omitempty"` // of the last round; 0: none
	Sizes       []nodeLine         `json:"sizes"`                      // of the last round
	// Explain holds the explanations of one node's sizes, round by round; of more than 10,000
	// rounds only the first ones and the last.
	Explain []agent.Explanation `json:"explain,omitempty"`
	// Absurd counts what reports said that cannot be; null: nothing.
	Absurd *env.Absurd `json:"absurd,omitempty"`
}

// result is one policy's run under the seed.
type result struct {
	Policy    string  `json:"policy"`
	Knobs     string  `json:"knobs,omitempty"` // as tuned
	RoundTime float64 `json:"round_seconds"`   // mean
	Samples   float64 `json:"samples_per_second"`
	Goodput   float64 `json:"goodput"`
	Waiting   float64 `json:"waiting"`   // idle share of the nodes' time
	Freshness float64 `json:"freshness"` // share of accepted samples that were fresh
	Progress  float64 `json:"progress"`  // goodput over the state oracle's; 0: not known
	Speedup   float64 `json:"speedup"`   // goodput over uniform's; 0: not known
}

type nodeLine struct {
	Name       string   `json:"name"`
	Device     string   `json:"device"`
	MicroBatch int      `json:"micro_batch"` // of a full micro-step; 0 without a share
	MicroSteps int      `json:"micro_steps"`
	Share      int      `json:"share"`              // samples that were handed out
	Samples    int      `json:"samples"`            // accepted
	LeftOut    string   `json:"left_out,omitempty"` // why there is no share
	Seconds    float64  `json:"seconds"`
	Idle       float64  `json:"idle"`     // share of the round
	Slowdown   *float64 `json:"slowdown"` // believed, safety margin included; null: no profile to compare with
	Status     string   `json:"status"`
}

// results compares all runs over the rounds of the agent's run.
func (w *watch) results() []result {
	n := len(w.history.rounds)
	goodput := func(policy string) float64 {
		if _, m := w.references.at(policy, n); m != nil {
			return m.score.Goodput
		}
		return 0
	}
	oracle, uniform := goodput(oracleReference), goodput(uniformReference)
	var out []result
	add := func(c *history, m *moment) {
		if m == nil {
			return
		}
		s := m.score
		r := result{
			Policy: c.policy, Knobs: c.knobs, RoundTime: s.Seconds / float64(n), Samples: share(float64(m.accepted), s.Seconds),
			Goodput: s.Goodput, Waiting: s.Waiting, Freshness: s.Freshness,
		}
		if oracle > 0 {
			r.Progress = s.Goodput / oracle
		}
		if uniform > 0 {
			r.Speedup = s.Goodput / uniform
		}
		out = append(out, r)
	}
	add(&w.history, &w.history.rounds[n-1])
	for _, policy := range []string{tunedReference, waitingReference, uniformReference, oracleReference} {
		add(w.references.at(policy, n))
	}
	return out
}

func (w *watch) document() document {
	s, c := w.setup, w.setup.cluster
	d := document{
		Cluster: s.name, Workload: c.Workload, Nodes: len(c.Nodes), GlobalBatch: c.GlobalBatch, Conditions: s.conditions.Name, Seed: s.seed,
		Policy: s.policy, Weights: s.weights, Rounds: len(w.history.rounds), Interrupted: len(w.history.rounds) < s.rounds,
		Results: w.results(), Rules: w.rules(),
	}
	if w.reasons != nil {
		d.Explain = w.reasons.all
	}
	if absurd := w.control.Absurd(); absurd.Any() {
		d.Absurd = &absurd
	}
	if free(c) {
		d.ChosenBatch = w.agent.GlobalBatch()
	}
	d.Deadline = w.round.Plan.Collect.Deadline.Seconds()
	slow := w.slowdowns()
	for i := range c.Nodes {
		r, b := &w.round.Report.Nodes[i], w.round.Plan.Sizes[i]
		d.Sizes = append(d.Sizes, nodeLine{
			Name: c.Nodes[i].Name, Device: c.Nodes[i].Device, Seconds: r.Seconds,
			MicroBatch: c.Nodes[i].MicroBatch(b), MicroSteps: c.Nodes[i].Steps(b), Share: b, Samples: r.Samples, LeftOut: w.leftOut(i),
			Idle: share(r.Idle, w.round.Report.Wait.Seconds()), Slowdown: slow[i], Status: r.Status.String(),
		})
	}
	return d
}

// rules counts the rounds under every rule; nil if the rule was fixed.
func (w *watch) rules() map[string]int {
	if !w.setup.freeRule() {
		return nil
	}
	counts := map[string]int{}
	for _, m := range w.history.rounds {
		counts[m.rule.String()]++
	}
	return counts
}

// titles are the names of the references.
var titles = map[string]string{
	tunedReference: "water-filling, tuned", waitingReference: "water-filling, no deadline",
	uniformReference: "equal sizes", oracleReference: "oracle (true speeds)",
}

// title is a reference's name in this run's tables and figures; "" for the agent.
func (w *watch) title(policy string) string {
	if policy == uniformReference && w.setup.cluster.Collect.Timed() {
		return titles[policy] + ", no deadline"
	}
	return titles[policy]
}

// summary is the comparison as text.
func (w *watch) summary() []string {
	results := w.results()
	var rows [][]string
	speedup, progress, knobs, waiting := 0.0, 0.0, "", 0.0
	for _, r := range results {
		name := w.title(r.Policy)
		switch {
		case r.Policy == waitingReference:
			waiting = r.Speedup
			knobs += ", and without a deadline " + r.Knobs
		case r.Policy == tunedReference:
			knobs = r.Knobs
		case name == "":
			name, speedup, progress = r.Policy, r.Speedup, r.Progress
		}
		rows = append(rows, []string{
			name, cli.Seconds(r.RoundTime), cli.Rate(r.Samples), cli.Percent(r.Waiting), cli.Percent(r.Freshness), cli.Ratio(r.Progress, cli.Percent(r.Progress)), cli.Ratio(r.Speedup, fmt.Sprintf("%.2fx", r.Speedup)),
		})
	}
	columns := []cli.Column{cli.Left(""), cli.Right("round time"), cli.Right("samples/s"), cli.Right("idle"), cli.Right("fresh"), cli.Right("of oracle"), cli.Right("of equal")}
	if !closesEarly(w.setup.cluster) { // all gradients are fresh
		columns = slices.Delete(columns, 4, 5)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 4, 5)
		}
	}
	lines := append([]string{"", fmt.Sprintf("%s under seed %d:", cli.Count(len(w.history.rounds), "round"), w.setup.seed), ""}, cli.Table(columns, rows)...)
	if speedup > 0 && progress > 0 {
		equal := fmt.Sprintf("Evenkeel makes %.2f times the progress of equal sizes,", speedup)
		if waiting > 0 {
			equal = fmt.Sprintf("Evenkeel makes %.2f times the progress of water-filling without a deadline, %.2f times that of equal sizes,", speedup/waiting, speedup)
		}
		lines = append(lines, "", equal,
			fmt.Sprintf("and %s of that of an oracle that knows every true speed, but not the noise.", cli.Percent(progress)))
	}
	if rules := w.rules(); rules != nil {
		often := slices.MaxFunc(slices.Sorted(maps.Keys(rules)), func(a, b string) int { return rules[a] - rules[b] })
		lines = append(lines, fmt.Sprintf("Evenkeel chose the rule of every round, most often %s (%d of %d); the other policies wait for all nodes.", often, rules[often], len(w.history.rounds)))
	}
	if knobs != "" {
		lines = append(lines, fmt.Sprintf("Water-filling was tuned on other seeds: %s.", knobs))
	}
	if c := w.setup.cluster; free(c) {
		lines = append(lines, "", fmt.Sprintf("The global batch went from %d to %d samples; allowed are %d to %d.", c.GlobalBatch, w.agent.GlobalBatch(), c.Choices.LeastBatch, c.Choices.MostBatch))
	}
	if more := append(w.samplesOfRounds(), w.outside()...); len(more) > 0 {
		lines = append(append(lines, ""), more...)
	}
	if text := w.control.Absurd().String(); text != "" {
		lines = append(lines, "", "Ignored, as it is impossible: "+text+".")
	}
	if err := w.tally.failure(w.setup.cluster); err != nil {
		lines = append(lines, "", "In this run "+err.Error()+".")
	}
	return lines
}
