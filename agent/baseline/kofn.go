package baseline

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// NewKofN returns synchronous training with backup workers (Chen, Pan, Monga, Bengio and
// Jozefowicz, "Revisiting distributed synchronous SGD", 2016): a round ends with the
// gradients of the first K of N nodes. Deviations: a fixed grace follows; sizes are
// water-filling's, not equal; late gradients are not dropped but taken when they come,
// by the round rule, and count less.
func NewKofN(c *cluster.Cluster, rule cluster.Rule, fill WaterFill) agent.Policy {
	return WithRule(newWaterFill(c, fill), rule)
}

// WithRule returns p with a fixed rule for all rounds.
func WithRule(p agent.Policy, rule cluster.Rule) agent.Policy { return &ruled{p, rule} }

// ruled is a policy with a fixed rule for all rounds.
type ruled struct {
	agent.Policy
	rule cluster.Rule
}

func (p *ruled) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect = p.rule.Apply(plan.Collect)
	return p.Policy.Decide(report, present, plan)
}
