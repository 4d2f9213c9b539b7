package serve

import (
	"fmt"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/live"
	"evenkeel/internal/badinput"
)

// Settings are what a job may be given before it starts, and changed to while it runs.
type Settings struct {
	GlobalBatch  int     `json:"global_batch,omitempty" minimum:"0" maximum:"1073741824" doc:"Samples per round over all ranks; 0: the process group gives it when it starts"`
	Workload     string  `json:"workload,omitempty" maxLength:"253" doc:"Name in the catalogue of profiles (evenkeel profiles list); empty: paces are learnt from the rounds alone"`
	Deadline     string  `json:"deadline,omitempty" maxLength:"32" doc:"When rounds end: a duration (1.5s), a share of the predicted time (110%), auto (the samples meet the global batch in the mean), or empty to wait for all. From the next start of the process group on"`
	EqualSteps   int     `json:"equal_steps,omitempty" minimum:"0" maximum:"16384" doc:"Micro-steps that every rank makes in a round, as FSDP, DeepSpeed and Megatron-LM need (gradient_accumulation_steps), of sizes that differ by at most one sample; 0: each rank as few as its memory allows. From the next start of the process group on"`
	Objectives   Weights `json:"objectives,omitzero" doc:"Weights of the objectives; none: speed alone"`
	Quorum       string  `json:"quorum,omitempty" maxLength:"64" doc:"For ranks that report one by one: how many gradients to wait for (12, 80%, all, auto, a list)"`
	Grace        string  `json:"grace,omitempty" maxLength:"64" doc:"For ranks that report one by one: how long to wait for the others after the quorum (500ms, 10%, auto, a list)"`
	MaxStaleness string  `json:"max_staleness,omitempty" maxLength:"32" doc:"For ranks that report one by one: age from which a late gradient is refused (30s)"`
	Timeout      string  `json:"timeout,omitempty" maxLength:"32" doc:"For ranks that report one by one: time after which silent ranks count as lost (5m)"`
}

// Weights are those of the objectives (cluster.Objectives). Only their proportions count.
type Weights struct {
	Speed     float64 `json:"speed,omitempty" minimum:"0" maximum:"1e9"`
	Waiting   float64 `json:"waiting,omitempty" minimum:"0" maximum:"1e9" doc:"Weight of ranks that do not wait"`
	Freshness float64 `json:"freshness,omitempty" minimum:"0" maximum:"1e9" doc:"Weight of gradients of the newest model"`
	Energy    float64 `json:"energy,omitempty" minimum:"0" maximum:"1e9" doc:"Weight of energy; needs ranks whose device's power is known"`
}

func (w Weights) objectives() cluster.Objectives { return cluster.Objectives(w) }

// collect reads the rule of the rounds.
func (s *Settings) collect() (clusterfile.Collect, error) {
	var f clusterfile.Collect
	var faults live.Faults
	read(&faults, "deadline", s.Deadline, &f.Deadline, clusterfile.ParseDeadline)
	read(&faults, "quorum", s.Quorum, &f.Quorum, clusterfile.ParseQuorum)
	read(&faults, "grace", s.Grace, &f.Grace, clusterfile.ParseGrace)
	read(&faults, "max_staleness", s.MaxStaleness, &f.MaxStaleness, clusterfile.ParseDuration)
	read(&faults, "timeout", s.Timeout, &f.Timeout.Duration, clusterfile.ParseDuration)
	if err := s.Objectives.objectives().Validate(); err != nil {
		faults = append(faults, live.Fault{Path: "objectives", Text: err.Error()})
	}
	if len(faults) > 0 {
		return f, badinput.Wrap(faults)
	}
	return f, nil
}

// read reads a setting into its place, if it is given.
func read[T any](faults *live.Faults, field, text string, to *T, parse func(string) (T, error)) {
	if text == "" {
		return
	}
	var err error
	if *to, err = parse(text); err != nil {
		*faults = append(*faults, live.Fault{Path: field, Text: err.Error()})
	}
}

// set replaces the settings. Weights hold at once, the others from the next start of the process group on.
func (j *job) set(s Settings) error {
	if _, err := s.collect(); err != nil {
		return err
	}
	if err := j.weigh(s.Objectives); err != nil {
		return err
	}
	j.settings = s
	j.record.history.Note(j.at, "change", "settings: those given hold from the next start of the process group on, weights at once")
	return nil
}

// weigh changes the objectives' weights.
func (j *job) weigh(w Weights) error {
	o := w.objectives()
	if err := o.Validate(); err != nil {
		return badinput.Wrap(err)
	}
	if j.gen.runs() {
		if err := o.Check(j.gen.rounds.Cluster()); err != nil {
			return badinput.Wrap(err)
		}
		j.gen.agent.SetWeights(o.Weights())
	}
	j.settings.Objectives = w
	return nil
}

// change is a request to change a running job. What it leaves out stays.
type change struct {
	Objectives *Weights       `json:"objectives,omitempty" doc:"Weights of the objectives"`
	Paused     *bool          `json:"paused,omitempty" doc:"true: sizes stay as they are"`
	Limits     map[string]int `json:"limits,omitempty" doc:"Largest micro-batch of a rank, by the rank's name, until the process group starts anew"`
}

// change makes all changes of a request, or none.
func (j *job) change(x *change) error {
	limits, err := j.gen.byRank(x.Limits)
	if err != nil {
		return err
	}
	if x.Objectives != nil {
		if err := j.weigh(*x.Objectives); err != nil {
			return err
		}
	}
	j.gen.bound(limits)
	if x.Paused != nil {
		j.paused = *x.Paused
	}
	j.record.history.Note(j.at, "change", x.String())
	return nil
}

// String says what is to be changed.
func (x *change) String() string {
	var parts []string
	if w := x.Objectives; w != nil {
		parts = append(parts, fmt.Sprintf("weights: speed %g, waiting %g, freshness %g, energy %g", w.Speed, w.Waiting, w.Freshness, w.Energy))
		if *w == (Weights{}) {
			parts = []string{"weights: speed alone"}
		}
	}
	if n := len(x.Limits); n > 0 {
		parts = append(parts, fmt.Sprintf("largest micro-batches of %d ranks", n))
	}
	if p := x.Paused; p != nil && *p {
		parts = append(parts, "paused")
	} else if p != nil {
		parts = append(parts, "resumed")
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, "; ")
}
