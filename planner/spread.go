package planner

import "evenkeel/planner/costmodel"

// spread is what the replicas of the plan divide among devices, besides tensors.
func (p *Plan) spread() costmodel.Spread {
	return costmodel.Spread{Context: max(1, p.Context), Experts: max(1, p.Experts)}
}

// Replica is the number of devices of a replica of a group.
func (p *Plan) Replica(g Group) int { return g.Tensor * max(1, p.Context) }

// validateSpread reports invalid degrees of context and expert parallelism.
func (p *Plan) validateSpread() error {
	switch {
	case p.Context < 0 || p.Context > maxDevices:
		return bad("context", "is %d; must be at least 1, or be left out", p.Context)
	case p.Experts < 0 || p.Experts > maxDevices:
		return bad("experts", "is %d; must be at least 1, or be left out", p.Experts)
	case p.Context > 1 && p.Experts > 1:
		return bad("experts", "is %d with context %d; a plan has one of the two above 1", p.Experts, p.Context)
	}
	return nil
}

// in is the job for plans of a spread. Like its model, it counts devices in units of Spread.Context.
func (j *Job) in(s costmodel.Spread) *Job {
	if s == j.model.Spread() {
		return j
	}
	k := *j
	k.model, k.classes = j.model.In(s), j.topology.Units(s.Context).Classes
	return &k
}
