package serve

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/clusterfile"
	"github.com/evenkeel/evenkeel/cluster/live"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Settings are what a job may be given before it starts, and changed to while it runs.
type Settings struct {
	GlobalBatch  int     `json:"global_batch,omitempty" minimum:"0" maximum:"1073741824" doc:"Samples per round over all ranks; 0: the process group says when it starts"`
	Workload     string  `json:"workload,omitempty" maxLength:"253" doc:"As in the catalogue of profiles (evenkeel profiles list), where the job is one of these; empty: paces are learnt from the rounds alone"`
	Deadline     string  `json:"deadline,omitempty" maxLength:"32" doc:"When rounds end: a duration (1.5s), a share of the predicted time (110%), auto (the samples meet the global batch in the mean), or empty to wait for all. From the next start of the process group on"`
	Objectives   Weights `json:"objectives,omitzero" doc:"Weights of what is wanted; none: speed alone"`
	Quorum       string  `json:"quorum,omitempty" maxLength:"64" doc:"Of ranks that report one by one: how many to wait for (12, 80%, all, auto, a list)"`
	Grace        string  `json:"grace,omitempty" maxLength:"64" doc:"The same: how long to wait for the others then (500ms, 10%, auto, a list)"`
	MaxStaleness string  `json:"max_staleness,omitempty" maxLength:"32" doc:"The same: age from which a late gradient is refused (30s)"`
	Timeout      string  `json:"timeout,omitempty" maxLength:"32" doc:"The same: after which silent ranks count as lost (5m)"`
}

// Weights are those of the objectives (cluster.Objectives). Only their proportions count.
type Weights struct {
	Speed     float64 `json:"speed,omitempty" minimum:"0" maximum:"1e9"`
	Waiting   float64 `json:"waiting,omitempty" minimum:"0" maximum:"1e9" doc:"Idle ranks"`
	Freshness float64 `json:"freshness,omitempty" minimum:"0" maximum:"1e9" doc:"Gradients of older models"`
	Energy    float64 `json:"energy,omitempty" minimum:"0" maximum:"1e9" doc:"Needs ranks whose device's power is known"`
}

func (w Weights) objectives() cluster.Objectives { return cluster.Objectives(w) }

// registration is what rank 0 sends when its process group starts.
type registration struct {
	ID          string      `json:"id" minLength:"8" maxLength:"128" doc:"Random; the same id gets the same answer"`
	GlobalBatch int         `json:"global_batch,omitempty" minimum:"0" maximum:"1073741824" doc:"Samples per round over all ranks; 0: the job's setting"`
	Workload    string      `json:"workload,omitempty" maxLength:"253" doc:"As in the catalogue of profiles; empty: the job's setting"`
	Deadline    string      `json:"deadline,omitempty" maxLength:"32" doc:"As in the job's settings; empty: the job's setting"`
	Ranks       []live.Rank `json:"ranks" minItems:"1" maxItems:"10000" nullable:"false" doc:"In rank order"`
}

// errEnded says that a registration is that of an older start.
var errEnded = errors.New("serve: another process group has started since; this one's registration has ended")

// collect reads the rule of the rounds.
func (s *Settings) collect() (clusterfile.Collect, error) {
	var f clusterfile.Collect
	var err error
	var faults live.Faults
	note := func(field string) {
		if err != nil {
			faults = append(faults, live.Fault{Path: field, Text: err.Error()})
			err = nil
		}
	}
	if s.Deadline != "" {
		f.Deadline, err = clusterfile.ParseDeadline(s.Deadline)
		note("deadline")
	}
	if s.Quorum != "" {
		f.Quorum, err = clusterfile.ParseQuorum(s.Quorum)
		note("quorum")
	}
	if s.Grace != "" {
		f.Grace, err = clusterfile.ParseGrace(s.Grace)
		note("grace")
	}
	if s.MaxStaleness != "" {
		f.MaxStaleness, err = clusterfile.ParseDuration(s.MaxStaleness)
		note("max_staleness")
	}
	if s.Timeout != "" {
		f.Timeout.Duration, err = clusterfile.ParseDuration(s.Timeout)
		note("timeout")
	}
	if err := s.Objectives.objectives().Validate(); err != nil {
		faults = append(faults, live.Fault{Path: "objectives", Text: err.Error()})
	}
	if len(faults) > 0 {
		return f, badinput.Wrap(faults)
	}
	return f, nil
}

// register starts a generation of the job, or finds the one of the same id.
func (j *job) register(r *registration) (result, error) {
	if r.ID == j.id {
		return result{number: j.number, sizes: j.sizes}, nil
	}
	key := sha256.Sum256([]byte(r.ID))
	if slices.Contains(j.ended, key) {
		return result{}, errEnded
	}
	settings := j.settings
	settings.GlobalBatch = cmp.Or(r.GlobalBatch, settings.GlobalBatch)
	settings.Workload = cmp.Or(r.Workload, settings.Workload)
	settings.Deadline = cmp.Or(r.Deadline, settings.Deadline)
	f, err := j.form(settings, r.Ranks)
	if err != nil {
		return result{}, err
	}
	if j.id != "" {
		j.ended = append(j.ended, sha256.Sum256([]byte(j.id)))
		j.ended = j.ended[max(len(j.ended)-maxEnded, 0):]
	}
	j.running, j.id, j.ranks, j.gen, j.agent, j.control = settings, r.ID, r.Ranks, f.gen, f.agent, f.control
	j.number++
	j.waiting, j.ran, j.newest, j.problem = nil, map[int]cluster.Plan{}, cluster.Report{}, ""
	j.history.Start(j.at, j.number, f.gen.Cluster())
	j.hand(f.plan)
	j.history.Decided(j.at, &j.plan, nil, f.control, f.agent.Performance())
	if j.limits = nil; j.config.Each != nil && j.metrics != nil {
		j.config.Each(Event{Job: j.name, Generation: j.number, Cluster: f.given, Weights: settings.Objectives.objectives()})
	}
	return result{number: j.number, sizes: j.sizes, changed: true}, nil
}

// formed is a generation as it begins.
type formed struct {
	given   *cluster.Cluster // as the ranks described it
	gen     *live.Generation
	agent   *agent.Agent
	control *agent.Control
	plan    cluster.Plan // the first
}

// form begins a generation of ranks, with what older ones learnt.
func (j *job) form(settings Settings, ranks []live.Rank) (*formed, error) {
	collect, err := settings.collect()
	if err != nil {
		return nil, err
	}
	if n := len(ranks); n > j.config.Ranks {
		return nil, live.Faults{{Path: "ranks", Text: fmt.Sprintf("%d ranks; this service takes jobs of at most %d", n, j.config.Ranks)}}
	}
	start := live.Registration{GlobalBatch: settings.GlobalBatch, Collect: collect, Ranks: ranks}
	if err := start.Validate(); err != nil {
		return nil, err
	}
	c, err := start.Cluster(settings.Workload, j.config.Catalogue)
	if err != nil {
		return nil, err
	}
	if err := settings.Objectives.objectives().Check(c); err != nil {
		return nil, badinput.Wrap(err)
	}
	f := &formed{given: c.Own(), gen: live.NewGeneration(c), agent: j.config.Trained.NewAgent(c, settings.Objectives.objectives().Weights())}
	f.control = &agent.Control{Cluster: c, Policy: f.agent, Behind: live.Behind}
	if j.control != nil {
		f.control.Adopt(j.control)
	}
	f.plan, err = f.control.Next(nil, f.gen.Present())
	return f, err
}
