package serve

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/live"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// describe is state under the lock, after all that has come in.
func (j *job) describe(ranks bool) JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	s := j.state(ranks)
	if j.refused != "" {
		s.Problem = cmp.Or(s.Problem, "the registration of the process group was refused: "+j.refused)
	}
	return s
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
	j.history.Note(j.at, "change", "settings: those given hold from the next start of the process group on, weights at once")
	return nil
}

// weigh changes the objectives' weights.
func (j *job) weigh(w Weights) error {
	o := w.objectives()
	if err := o.Validate(); err != nil {
		return badinput.Wrap(err)
	}
	if j.gen != nil {
		if err := o.Check(j.gen.Cluster()); err != nil {
			return badinput.Wrap(err)
		}
		j.agent.SetWeights(o.Weights())
	}
	j.settings.Objectives = w
	return nil
}

// change changes a running job: all that is given, or nothing.
func (j *job) change(x *change) error {
	index := map[string]int{}
	if j.gen != nil {
		nodes := j.gen.Cluster().Nodes
		for i := range nodes {
			index[nodes[i].Name] = i
		}
	}
	var faults live.Faults
	for name, most := range x.Limits {
		i, ok := index[name]
		switch {
		case !ok:
			faults = append(faults, live.Fault{Path: "limits", Text: fmt.Sprintf("no rank is called %.80q", name)})
		case most < j.gen.Cluster().Nodes[i].LeastShare() || most > cluster.MaxGlobalBatch:
			faults = append(faults, live.Fault{Path: "limits", Text: fmt.Sprintf("%.80q: is %d; it must lie in %d..%d", name, most, j.gen.Cluster().Nodes[i].LeastShare(), cluster.MaxGlobalBatch)})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	if x.Objectives != nil {
		if err := j.weigh(*x.Objectives); err != nil {
			return err
		}
	}
	for name, most := range x.Limits {
		j.control.Bound(index[name], most)
		if j.limits == nil {
			j.limits = map[int]int{}
		}
		j.limits[index[name]] = most
	}
	if x.Paused != nil {
		j.paused = *x.Paused
	}
	j.history.Note(j.at, "change", x.String())
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
