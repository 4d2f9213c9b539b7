package run

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// preference holds the weights from a round on, counted from 1.
type preference struct {
	From    int                `json:"from"`
	Weights cluster.Objectives `json:"weights"`
}

// preferences reads the --weights of a run of so many rounds, in order. Before the first of
// them the cluster file's weights hold.
func preferences(texts []string, file cluster.Objectives, c *cluster.Cluster, rounds int) ([]preference, error) {
	if file == (cluster.Objectives{}) {
		file.Speed = 1
	}
	var all []preference
	for _, text := range texts {
		p := preference{From: 1}
		if number, rest, ok := strings.Cut(text, ":"); ok {
			var err error
			if p.From, err = strconv.Atoi(strings.TrimSpace(number)); err != nil || p.From < 1 || p.From > rounds {
				return nil, badinput.Errorf("--weights: %q; before the colon write the first round of these weights, 1 to %d", text, rounds)
			}
			text = rest
		}
		var err error
		if p.Weights, err = objectives(text); err != nil {
			return nil, err
		}
		if err := p.Weights.Check(c); err != nil {
			return nil, badinput.Errorf("--weights: %w", err)
		}
		if slices.ContainsFunc(all, func(q preference) bool { return q.From == p.From }) {
			return nil, badinput.Errorf("--weights: given twice from round %d on", p.From)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(p, q preference) int { return p.From - q.From })
	if len(all) == 0 || all[0].From > 1 {
		all = append([]preference{{1, file}}, all...)
	}
	return all, nil
}

// objectives reads weights written as speed=1,waiting=0.5; those left out are 0.
func objectives(text string) (cluster.Objectives, error) {
	var o cluster.Objectives
	fields := map[string]*float64{"speed": &o.Speed, "waiting": &o.Waiting, "freshness": &o.Freshness, "energy": &o.Energy}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		field, known := fields[name]
		if !ok || !known {
			return o, badinput.Errorf("--weights: %q; write speed=1,waiting=0.5,freshness=0,energy=0, each at most once", part)
		}
		delete(fields, name)
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) {
			return o, badinput.Errorf("--weights: %s is %q; write a number", name, value)
		}
		*field = v
	}
	if err := o.Validate(); err != nil {
		return o, badinput.Errorf("--weights: %w", err)
	}
	if o == (cluster.Objectives{}) {
		return o, badinput.Errorf("--weights: all are zero; give at least one above 0")
	}
	return o, nil
}

// prefer sets the agent's weights for the coming round, counted from 1, and returns them;
// nil if they stay the same.
func (s *setup) prefer(a *agent.Agent, round int) *cluster.Objectives {
	for _, p := range s.preferences {
		if p.From == round && round > 1 { // the agent was created with the first
			a.SetWeights(p.Weights.Weights())
			return &p.Weights
		}
	}
	return nil
}
