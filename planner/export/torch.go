package export

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"evenkeel/planner"
)

//go:embed plan.py.tmpl
var torchText string

var torchTemplate = template.Must(template.New("torch").Funcs(template.FuncMap{
	"quoted": quoted, "degree": func(n int) int { return max(1, n) }, "sharding": func(s planner.Sharding) string { return quoted(string(s)) },
	"list": func(v []int) string { return strings.ReplaceAll(fmt.Sprint(v), " ", ", ") },
	"bool": func(b bool) string { return map[bool]string{true: "True", false: "False"}[b] },
}).Parse(torchText))

// writeTorch writes a Python module. Only its functions device_meshes and pipeline need PyTorch.
func writeTorch(f *rendering) error {
	if (f.Schedule == planner.ScheduleZeroBubble || f.Schedule == planner.ScheduleInterleaved) && f.Transfers != planner.TransfersOverlap {
		f.problem("transfers: do not overlap with computing; PyTorch's pipelining runs %s with transfers %q: ask for it in the plan, and check it again", f.Schedule, planner.TransfersOverlap)
	}
	if f.Schedule == planner.ScheduleZeroBubble && !f.InRounds() {
		f.problem("micro_batch: gives %d micro-batches, which PyTorch's ScheduleInterleavedZeroBubble cannot run in equal rounds on %d stages; give another one", f.MicroBatches(), f.Pipeline())
	}
	p := *f.Plan
	if n, m := len(p.Stages), p.MicroBatches(); m < n && (p.Schedule == "" || p.Schedule == planner.Schedule1F1B) {
		// Schedule1F1B refuses them (torch/distributed/pipelining/schedules.py): its passes are written out.
		p.Schedule = planner.Schedule1F1B
		for i := range n {
			p.Warmup = append(p.Warmup, min(m, n-i))
		}
	}
	if err := torchTemplate.Execute(f, &p); err != nil {
		return fmt.Errorf("torch: %w", err)
	}
	return nil
}

// quoted is a string literal of Python: JSON escapes strings in the same way.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // every string can be encoded
	}
	return string(b)
}
