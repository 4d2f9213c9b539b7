package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
	"github.com/evenkeel/evenkeel/planner/peerprofile"
)

// measured is a plan that was run.
type measured struct {
	name, group string
	plan        *planner.Plan
	perMachine  map[string]int
	count       map[string]int
	seconds     float64
	bytes       float64 // largest peak of a device
}

// sailorPlan is a file of Sailor's validation set.
type sailorPlan struct {
	Pipelines []struct {
		Layers [][]int `json:"layers_per_stage"`
		Stages [][]any `json:"tmp_per_stage"` // by stage and replica: [[device, count, zone]], tensor degree
	} `json:"pipeline_list"`
	Micro   int     `json:"mbs"`
	Global  int     `json:"gbs"`
	Seconds float64 `json:"real"`
	Bytes   float64 `json:"max_mem"`
}

// sailor scores two sets of plans.
func sailor(w io.Writer, root string) error {
	p, err := peerprofile.Sailor(root+"/profiles/OPT-350", root+"/llm_info.json", "OPT-350")
	if err != nil {
		return err
	}
	for _, set := range []struct{ title, folder string }{{"OPT-350M on GH200, 15 plans", "clariden/OPT-350"}, {"OPT-350M on RTX 2080, RTX 3090 and Titan RTX together, 9 plans", "mit"}} {
		plans, err := sailorPlans(root + "/validation/" + set.folder)
		if err != nil {
			return err
		}
		if err := score(w, set.title, p, plans); err != nil {
			return err
		}
	}
	return nil
}

func sailorPlans(folder string) ([]measured, error) {
	var all []measured
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var f sailorPlan
		if err := json.Unmarshal(text, &f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		m, err := f.measured()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		m.name = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "plan_config_"), ".json")
		m.group = filepath.Base(filepath.Dir(path))
		all = append(all, m)
		return nil
	})
	return all, err
}

// measured turns a file into a plan of ours. A stage that mixes devices has a group for each.
func (f *sailorPlan) measured() (measured, error) {
	m := measured{seconds: f.Seconds, bytes: f.Bytes, perMachine: map[string]int{}, count: map[string]int{}}
	line := f.Pipelines[0]
	m.plan = &planner.Plan{Version: planner.Version, Model: "OPT-350M", GlobalBatch: f.Global, MicroBatch: f.Micro * len(line.Stages[0])}
	for i, replicas := range line.Stages {
		s := planner.Stage{From: line.Layers[i][0], To: line.Layers[i][len(line.Layers[i])-1] + 1}
		for _, r := range replicas {
			pair, ok := r.([]any)
			if !ok || len(pair) != 2 {
				return m, fmt.Errorf("stage %d: a replica is %v", i, r)
			}
			device := pair[0].([]any)[0].([]any)
			name, tensor := device[0].(string), int(pair[1].(float64))
			m.perMachine[name] = tensor // every replica fills a machine of its own
			g := slices.IndexFunc(s.Groups, func(g planner.Group) bool { return g.Device == name })
			if g < 0 {
				s.Groups = append(s.Groups, planner.Group{Devices: planner.Devices{Device: name, First: m.count[name]}, Tensor: tensor})
				g = len(s.Groups) - 1
			}
			s.Groups[g].Count += tensor
			s.Groups[g].MicroBatches = append(s.Groups[g].MicroBatches, f.Micro)
			m.count[name] += tensor
		}
		s.Strategies = []planner.Strategy{{From: s.From, To: s.To, Sharding: planner.Replicated}}
		m.plan.Stages = append(m.plan.Stages, s)
	}
	return m, nil
}

// model is what is calibrated: how much slower layers run in training than in their profile, and the bandwidth of a
// machine's link.
type model struct{ slow, bandwidth float64 }

// predict prices a plan with the planner's own cost model, simulated.
func (m *measured) predict(p *layerprofile.Profile, x model) (*planner.Prediction, error) {
	var y strings.Builder
	y.WriteString("nodes:\n")
	for _, name := range sorted(m.count) {
		fmt.Fprintf(&y, "  - {device: %s, count: %d, per_machine: %d, memory: 1TiB, slowdown: %g, link: %.0fB/s}\n", name, m.count[name], m.perMachine[name], x.slow, x.bandwidth)
	}
	t, err := cluster.ReadTopology(strings.NewReader(y.String()), "validation", nil)
	if err != nil {
		return nil, err
	}
	job, err := planner.NewJob(p, t, planner.Options{GlobalBatches: []int{m.plan.GlobalBatch}, States: costmodel.Full32, Overlap: costmodel.Overlap{Off: true}})
	if err != nil {
		return nil, err
	}
	return job.Predict(m.plan)
}

func sorted(m map[string]int) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// score calibrates on all groups but one, group by group, and prints what the others come to.
func score(w io.Writer, title string, p *layerprofile.Profile, plans []measured) error {
	var models []model
	for slow := 0.86; slow < 1.3; slow += 0.02 {
		for bandwidth := 50e6; bandwidth < 100e9; bandwidth *= 1.25 {
			models = append(models, model{slow, bandwidth})
		}
	}
	// Prices of all plans under all models.
	seconds := make([][]float64, len(plans))
	states, active, width := make([]float64, len(plans)), make([]float64, len(plans)), make([]float64, len(plans))
	for i := range plans {
		width[i] = float64(plans[i].plan.Stages[0].Groups[0].Tensor)
		for _, x := range models {
			r, err := plans[i].predict(p, x)
			if err != nil {
				return fmt.Errorf("%s: %w", plans[i].name, err)
			}
			seconds[i] = append(seconds[i], r.Simulated)
			for _, s := range r.Stages {
				for _, u := range s.Memory {
					if u.States+u.Activations > states[i]+active[i] {
						states[i], active[i] = u.States, u.Activations
					}
				}
			}
		}
	}
	fmt.Fprintf(w, "### %s\n\n| plan | measured s | predicted s | off %% | measured GB | predicted GB | off %% |\n|---|---|---|---|---|---|---|\n", title)
	sum, sumBytes := 0.0, 0.0
	for i, m := range plans {
		best, k := math.Inf(1), 0
		for x := range models {
			e := 0.0
			for j, o := range plans {
				if o.group != m.group {
					e += math.Abs(seconds[j][x]/o.seconds - 1)
				}
			}
			if e < best {
				best, k = e, x
			}
		}
		base, times := memoryFit(plans, m.group, states, active, width)
		t, bytes := seconds[i][k], base*width[i]+states[i]+times*active[i]
		off, offBytes := t/m.seconds-1, bytes/m.bytes-1
		sum, sumBytes = sum+math.Abs(off), sumBytes+math.Abs(offBytes)
		fmt.Fprintf(w, "| %s | %.3f | %.3f | %+.1f | %.2f | %.2f | %+.1f |\n", m.name, m.seconds, t, 100*off, m.bytes/1e9, bytes/1e9, 100*offBytes)
	}
	n := float64(len(plans))
	fmt.Fprintf(w, "\nMean absolute error %.1f%% in time, %.1f%% in memory, each plan by what the plans of other numbers of machines say.\n\n", 100*sum/n, 100*sumBytes/n)
	return nil
}

// memoryFit finds the bytes that a device holds beside the model for each device of its replica (communicators' buffers
// grow with their peers), and the factor of the activations, with the least mean relative error on the other groups.
func memoryFit(plans []measured, group string, states, active, width []float64) (base, times float64) {
	best := math.Inf(1)
	for b := 0.0; b < 3e9; b += 5e7 {
		for f := 0.0; f < 2.5; f += 0.02 {
			e := 0.0
			for j, o := range plans {
				if o.group != group {
					e += math.Abs((b*width[j]+states[j]+f*active[j])/o.bytes - 1)
				}
			}
			if e < best {
				best, base, times = e, b, f
			}
		}
	}
	return base, times
}
