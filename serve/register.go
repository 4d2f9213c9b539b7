package serve

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/cluster/live"
	"evenkeel/internal/badinput"
)

// registration is what rank 0 sends when its process group starts.
type registration struct {
	ID          string      `json:"id" minLength:"8" maxLength:"128" doc:"Random id of this start; the same id gets the same answer"`
	GlobalBatch int         `json:"global_batch,omitempty" minimum:"0" maximum:"1073741824" doc:"Samples per round over all ranks; 0: the job's setting"`
	Workload    string      `json:"workload,omitempty" maxLength:"253" doc:"Name in the catalogue of profiles; empty: the job's setting"`
	Deadline    string      `json:"deadline,omitempty" maxLength:"32" doc:"As in the job's settings; empty: the job's setting"`
	EqualSteps  int         `json:"equal_steps,omitempty" minimum:"0" maximum:"16384" doc:"As in the job's settings; 0: the job's setting"`
	Ranks       []live.Rank `json:"ranks" minItems:"1" maxItems:"10000" nullable:"false" doc:"Ranks in rank order"`
}

// errEnded says that a registration is that of an older start.
var errEnded = errors.New("serve: another process group has started since; this one's registration has ended")

// register starts a generation of the job, or finds the one of the same id.
func (j *job) register(r *registration) (result, error) {
	if r.ID == j.gen.id {
		return result{number: j.gen.number, sizes: j.gen.sizes}, nil
	}
	if slices.Contains(j.ended, sha256.Sum256([]byte(r.ID))) {
		return result{}, errEnded
	}
	settings := j.settings
	settings.GlobalBatch = cmp.Or(r.GlobalBatch, settings.GlobalBatch)
	settings.Workload = cmp.Or(r.Workload, settings.Workload)
	settings.Deadline = cmp.Or(r.Deadline, settings.Deadline)
	settings.EqualSteps = cmp.Or(r.EqualSteps, settings.EqualSteps)
	f, err := form(j.config, settings, r.Ranks, j.gen.control)
	if err != nil {
		return result{}, err
	}
	if j.gen.id != "" {
		j.ended = append(j.ended, sha256.Sum256([]byte(j.gen.id)))
		j.ended = j.ended[max(len(j.ended)-maxEnded, 0):]
	}
	j.gen = generation{
		number: j.gen.number + 1, id: r.ID, running: settings, ranks: r.Ranks, rounds: f.rounds, agent: f.agent, control: f.control,
		ran: map[int]cluster.Plan{},
	}
	j.record.history.Start(j.at, j.gen.number, f.rounds.Cluster())
	j.hand(f.plan, nil)
	if j.config.Each != nil && j.record.metrics != nil {
		j.config.Each(Event{Job: j.name, Generation: j.gen.number, Cluster: f.given, Weights: settings.Objectives.objectives()})
	}
	return result{number: j.gen.number, sizes: j.gen.sizes, changed: true}, nil
}

// formed is a generation as it begins.
type formed struct {
	given   *cluster.Cluster // as the ranks described it
	rounds  *live.Generation
	agent   *agent.Agent
	control *agent.Control
	plan    cluster.Plan // the first
}

// form begins a generation of ranks, with what the one before (nil: none) learnt.
func form(c *Config, settings Settings, ranks []live.Rank, before *agent.Control) (*formed, error) {
	collect, err := settings.collect()
	if err != nil {
		return nil, err
	}
	if n := len(ranks); n > c.Ranks {
		return nil, live.Faults{{Path: "ranks", Text: fmt.Sprintf("%d ranks; this service takes jobs of at most %d", n, c.Ranks)}}
	}
	start := live.Registration{GlobalBatch: settings.GlobalBatch, Collect: collect, EqualSteps: settings.EqualSteps, Ranks: ranks}
	if err := start.Validate(); err != nil {
		return nil, err
	}
	cl, err := start.Cluster(settings.Workload, c.Catalogue)
	if err != nil {
		return nil, err
	}
	objectives := settings.Objectives.objectives()
	if err := objectives.Check(cl); err != nil {
		return nil, badinput.Wrap(err)
	}
	f := &formed{given: cl.Own(), rounds: live.NewGeneration(cl), agent: c.Trained.NewAgent(cl, objectives.Weights())}
	f.control = &agent.Control{Cluster: cl, Policy: f.agent, Behind: live.Behind}
	if before != nil {
		f.control.Adopt(before.Beliefs())
	}
	f.plan, err = f.control.Next(nil, f.rounds.Present())
	return f, err
}
