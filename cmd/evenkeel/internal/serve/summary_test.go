package serve

import (
	"strings"
	"testing"

	"evenkeel/serve"
)

// The closing line says that a registration was refused and why, not that there was none.
func TestSummaryOfProblems(t *testing.T) {
	const refused = "the registration of the process group was refused: deadline is 5"
	for name, x := range map[string]struct {
		state serve.JobState
		want  string
	}{
		"none":    {serve.JobState{Name: "job"}, "job: no process group registered; does the command use evenkeel.Tuner?"},
		"refused": {serve.JobState{Name: "job", Problem: refused}, "job: nothing was tuned; " + refused},
		"later":   {serve.JobState{Name: "job", Generation: 1, Problem: refused}, "Sizes stopped changing: " + refused},
		"pieces":  {serve.JobState{Name: "job", Generation: 1, Rounds: 3, Samples: 258, GlobalBatch: 86}, "job: 0 ranks, global batch 86, 3 rounds, 258 samples (or pieces)"},
	} {
		if text := strings.Join(newSummary(x.state, 0).lines(), "\n"); !strings.Contains(text, x.want) || x.state.Problem == "" && strings.Contains(text, "refused") {
			t.Errorf("%s: no %q in\n%s", name, x.want, text)
		}
	}
}
