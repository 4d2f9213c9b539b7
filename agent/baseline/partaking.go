package baseline

import "github.com/evenkeel/evenkeel/agent"

// partaking is a policy under another rule of who takes part.
type partaking struct {
	agent.Policy
	rule agent.Partaking
}

// WithPartaking returns the policy under a rule of who takes part.
func WithPartaking(p agent.Policy, rule agent.Partaking) agent.Policy { return partaking{p, rule} }

// Partaking implements agent.Partaker.
func (p partaking) Partaking() agent.Partaking { return p.rule }

// usable is the slowdown below which Returns takes a node back.
const usable = 5

// Returns is a rule that knows when a node that was left out would be of use again, and tries it
// then alone: a bound. It does not know beforehand when a node will fall silent.
func Returns(truth TruthSource) agent.Partaking {
	rule := agent.DefaultPartaking
	rule.Losses = 1 // a loss leaves it out
	rule.Back = func(node int) bool {
		t := truth.Truth()
		return !t.Mute[node] && t.Slowdown[node] < usable
	}
	return rule
}
