package agent

import "github.com/evenkeel/evenkeel/cluster"

// kofn is synchronous training with backup workers (Chen, Pan, Monga, Bengio and
// Jozefowicz, "Revisiting distributed synchronous SGD", 2016): a round ends with the
// gradients of the first K of N nodes. Deviations: a fixed grace follows; sizes are
// water-filling's, not equal; late gradients are not dropped but taken when they come,
// as the round rule has it, and count less.
type kofn struct {
	*waterFill
	rule cluster.Rule
}

// NewKofN returns the rule for c.
func NewKofN(c *cluster.Cluster, rule cluster.Rule, fill WaterFill) Policy {
	return &kofn{newWaterFill(c, fill), rule}
}

func (p *kofn) Decide(report *cluster.Report, present []bool, plan *cluster.Plan) error {
	plan.Collect = p.rule.Apply(plan.Collect)
	return p.waterFill.Decide(report, present, plan)
}
