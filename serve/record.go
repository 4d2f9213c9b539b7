package serve

import (
	"cmp"
	"maps"
	"time"

	"evenkeel/cluster"
	"evenkeel/serve/history"
)

// record is what happened to a job, for people: no decision rests on it. The job's lock guards it.
type record struct {
	rounds  int
	newest  time.Time // of the newest report
	samples int64
	counts  map[string]int64 // reports by verdict
	paces   paces
	refused string // why the newest registration was; the journal does not have it
	history history.History
	metrics *jobMetrics // nil: the job is being read from the journal, and was counted when it happened
}

// count counts a report by its verdict.
func (r *record) count(verdict string) {
	r.counts[verdict]++
	r.metrics.report(verdict)
}

// took counts an accepted round of a generation.
func (r *record) took(at, created time.Time, report *cluster.Report, g *generation) {
	r.rounds++
	r.refused = "" // a process group runs
	r.newest = at
	r.samples += int64(report.Accepted)
	took := measure(report)
	r.paces.add(took, g.number == 1 && report.Plan == 1, report.Round == 0)
	r.history.Took(at.Sub(created), report, g.agent.Performance(), g.agent.NoiseScale())
	r.metrics.took(took)
}

// describe fills in what a job's state says of the past.
func (r *record) describe(s *JobState) {
	s.Rounds, s.Samples, s.Reports, s.LastReport = r.rounds, r.samples, maps.Clone(r.counts), r.newest
	s.First, s.Recent = r.paces.begin(), paceOf(r.paces.recent)
	s.Gain = r.history.Gain()
	if r.refused != "" {
		s.Problem = cmp.Or(s.Problem, "the registration of the process group was refused: "+r.refused)
	}
}
