package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tables "evenkeel/experiments/internal/measured"
	"evenkeel/planner"
)

// set is plans that were run on one cluster.
type set struct {
	title, folder string
	model         string // in llm_info.json and the folder of profiles
	standIn       string // device whose profile stands in for all, for memory alone
	// Memory of each device; RTX-2080 as the 2080 Ti, for one plan took 9.4 GB.
	memory map[string]string
	// Link of each device, the bandwidth between machines at which Sailor's measurements level off (providers/network_coeffs_all_homo.json
	// for GH-96; between unlike RTX machines multizone_bandwidths_het.json).
	link string
	// Plans whose memory contradicts the others; plan calibrate names them.
	odd []string
}

var sets = []set{
	{"OPT-350M on GH200, 15 plans", "clariden/OPT-350", "OPT-350", "", map[string]string{"GH-96": "96GB"}, "22.93GB/s", nil},
	{"OPT-350M on RTX 2080, RTX 3090 and Titan RTX together, 9 plans", "mit", "OPT-350", "",
		map[string]string{"RTX-2080": "11GB", "RTX-3090": "24GB", "Titan-RTX": "24GB"}, "114.9MB/s", []string{"N2_D1", "N2_D2"}},
	// Times are those of A100. N4_D4 has the layers of OPT-350M.
	{"GPT-Neo 2.7B on GH200, 11 plans: memory alone", "clariden/GPT-NEO", "GPT-Neo-2.7", "A100-40", map[string]string{"GH-96": "96GB"}, "22.93GB/s", []string{"N4_D4"}},
}

// flags of plan check and calibrate: how the plans were trained. Megatron-DeepSpeed has no sequence parallelism, but divides what the devices
// of a replica send on just so (scatter-gather); else the pipelines on RTX would take four times as long as measured.
var flags = []string{"--precision", "fp32", "--overlap", "off", "--sequence-parallel"}

// measured is a plan that was run, and what is predicted of it.
type measured struct {
	name, group     string
	seconds, bytes  float64 // bytes: largest peak of a device
	plan, cluster   string  // files
	predicted, bare prediction
}

// prediction is what plan check says, with and without a calibration.
type prediction struct {
	seconds, bytes float64
	fits           bool
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

// load writes a plan and a cluster file for each of Sailor's plans.
func (s *set) load(c *command, root string) ([]measured, error) {
	var all []measured
	err := filepath.WalkDir(root+"/validation/"+s.folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		var f sailorPlan
		if err := tables.JSON(path, &f); err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "plan_config_"), ".json")
		m := measured{name: name, group: filepath.Base(filepath.Dir(path)), seconds: f.Seconds, bytes: f.Bytes, plan: c.file(name + ".json"), cluster: c.file(name + ".yaml")}
		plan, nodes, err := f.plan(s)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := planner.WritePlan(m.plan, plan); err != nil {
			return err
		}
		all = append(all, m)
		return os.WriteFile(m.cluster, []byte(nodes), 0o600)
	})
	return all, err
}

// plan turns a file into a plan and a cluster file of ours. A stage that mixes devices has a group for each.
func (f *sailorPlan) plan(s *set) (*planner.Plan, string, error) {
	perMachine, count := map[string]int{}, map[string]int{}
	line := f.Pipelines[0]
	p := &planner.Plan{Version: planner.Version, Model: "OPT-350M", GlobalBatch: f.Global, MicroBatch: f.Micro * len(line.Stages[0])}
	for i, replicas := range line.Stages {
		stage := planner.Stage{From: line.Layers[i][0], To: line.Layers[i][len(line.Layers[i])-1] + 1}
		for _, r := range replicas {
			pair, ok := r.([]any)
			if !ok || len(pair) != 2 {
				return nil, "", fmt.Errorf("stage %d: a replica is %v", i, r)
			}
			device := pair[0].([]any)[0].([]any)
			name, tensor := device[0].(string), int(pair[1].(float64))
			perMachine[name] = tensor // every replica fills a machine of its own
			g := slices.IndexFunc(stage.Groups, func(g planner.Group) bool { return g.Device == name })
			if g < 0 {
				stage.Groups = append(stage.Groups, planner.Group{Devices: planner.Devices{Device: name, First: count[name]}, Tensor: tensor})
				g = len(stage.Groups) - 1
			}
			stage.Groups[g].Count += tensor
			stage.Groups[g].MicroBatches = append(stage.Groups[g].MicroBatches, f.Micro)
			count[name] += tensor
		}
		stage.Strategies = []planner.Strategy{{From: stage.From, To: stage.To, Sharding: planner.Replicated}}
		p.Stages = append(p.Stages, stage)
	}
	nodes := "nodes:\n"
	for _, name := range slices.Sorted(maps.Keys(count)) {
		nodes += fmt.Sprintf("  - {device: %s, count: %d, per_machine: %d, memory: %s, link: %s}\n", name, count[name], perMachine[name], s.memory[name], s.link)
	}
	return p, nodes, nil
}

// calibrate writes the calibration of all plans but those of a group ("": none is left out).
func (s *set) calibrate(c *command, plans []measured, without string, odd bool) error {
	text := "plan,cluster,seconds,peak_bytes\n"
	for _, m := range plans {
		if m.group == without {
			continue
		}
		bytes := fmt.Sprint(m.bytes)
		if !odd && slices.Contains(s.odd, m.name) {
			bytes = ""
		}
		text += fmt.Sprintf("%s,%s,%v,%s\n", filepath.Base(m.plan), filepath.Base(m.cluster), m.seconds, bytes)
	}
	if err := os.WriteFile(c.file("measured.csv"), []byte(text), 0o600); err != nil {
		return err
	}
	_, err := c.run(slices.Concat([]string{"plan", "calibrate", c.file("measured.csv"), "--profile", c.file("layers.csv"), "--out", c.file("calibration.json")}, flags)...)
	return err
}

// check predicts a plan. A plan that does not fit is predicted too.
func (c *command) check(m *measured, more ...string) (prediction, error) {
	out, err := c.run(slices.Concat([]string{"plan", "check", m.plan, "--profile", c.file("layers.csv"), "--cluster", m.cluster, "--json"}, flags, more)...)
	x := prediction{fits: err == nil}
	var p planner.Plan
	if bad := json.Unmarshal(out, &p); bad != nil || p.Predicted == nil {
		return x, fmt.Errorf("%s: %w", m.name, err)
	}
	x.seconds = p.Predicted.Simulated
	for _, stage := range p.Predicted.Stages {
		for _, u := range stage.Memory {
			x.bytes = max(x.bytes, u.Peak())
		}
	}
	return x, nil
}

// score calibrates on all groups but one, group by group, and prints what plan check says of the plans of that one.
func (s *set) score(w io.Writer, c *command, root string) error {
	plans, err := s.load(c, root)
	if err != nil {
		return err
	}
	if s.standIn != "" {
		var errors errors
		fmt.Fprintf(w, "### %s\n\n| plan | measured GB | plain GB | off %% |\n|---|---|---|---|\n", s.title)
		for i := range plans {
			m := &plans[i]
			if slices.Contains(s.odd, m.name) {
				continue
			}
			if m.bare, err = c.check(m); err != nil {
				return err
			}
			fmt.Fprintf(w, "| %s | %.2f | %.2f | %s |\n", m.name, m.bytes/1e9, m.bare.bytes/1e9, errors.add(m.bare.bytes, m.bytes))
		}
		fmt.Fprintf(w, "\nMean error %.1f%%, furthest under %.1f%%.\n\n", errors.mean(), max(0, -slices.Min(errors.all)))
		return nil
	}
	done := map[string]bool{}
	for _, m := range plans {
		if done[m.group] {
			continue
		}
		done[m.group] = true
		if err := s.calibrate(c, plans, m.group, false); err != nil {
			return err
		}
		for i := range plans {
			o := &plans[i]
			if o.group != m.group {
				continue
			}
			if o.predicted, err = c.check(o, "--calibration", c.file("calibration.json")); err != nil {
				return err
			}
			if o.bare, err = c.check(o); err != nil {
				return err
			}
		}
	}
	s.print(w, plans)
	if len(s.odd) > 0 {
		err := s.calibrate(c, plans, "", true)
		fmt.Fprintf(w, "With the memory of all plans, `plan calibrate` refuses:\n\n> %s\n\n", strings.ReplaceAll(fmt.Sprint(err), c.folder+"/", ""))
	}
	return nil
}
