package planner_test

import (
	"encoding/json"
	"fmt"
	"strings"
)

func (l *twinLevel) yaml() string {
	var parts []string
	if len(l.Rates) == 1 {
		parts = append(parts, fmt.Sprintf("bandwidth: %vMB/s", l.Rates[0].Bandwidth/1e6))
	} else if len(l.Rates) > 1 {
		var rates []string
		for _, r := range l.Rates {
			rates = append(rates, fmt.Sprintf("%.0f: %vMB/s", r.Size, r.Bandwidth/1e6))
		}
		parts = append(parts, "bandwidth: {"+strings.Join(rates, ", ")+"}")
	}
	if l.Latency > 0 {
		parts = append(parts, fmt.Sprintf("latency: %.0fns", l.Latency*1e9))
	}
	if l.Start > 0 {
		parts = append(parts, fmt.Sprintf("start: %.0fns", l.Start*1e9))
	}
	if l.Secure {
		parts = append(parts, "secure: true")
	}
	return strings.Join(parts, ", ")
}

// yaml is the cluster file.
func (c *twinCluster) yaml() string {
	var b strings.Builder
	b.WriteString("nodes:\n")
	for i := range c.Classes {
		k := &c.Classes[i]
		fmt.Fprintf(&b, "  - {device: %s, count: %d, per_machine: %d, memory: %.0f, slowdown: %v, inside: {%s}, link: {%s}", k.Device, k.Count, k.PerMachine, k.Memory, k.Slow, k.Inside.yaml(), k.Link.yaml())
		if k.Switch >= 0 {
			fmt.Fprintf(&b, ", switch: s%d", k.Switch)
		}
		b.WriteString("}\n")
	}
	if len(c.Switches) > 0 {
		b.WriteString("switches:\n")
	}
	for i := range c.Switches {
		s := &c.Switches[i]
		fmt.Fprintf(&b, "  - {name: s%d", i)
		if level := s.Level.yaml(); level != "" {
			b.WriteString(", " + level)
		}
		if s.Up >= 0 {
			fmt.Fprintf(&b, ", up: s%d", s.Up)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// csv is the layer profile.
func (c *twinCase) csv() string {
	var b strings.Builder
	b.WriteString("layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,backward_seconds,update_seconds,activation_bytes")
	if c.fixed {
		b.WriteString(",fixed_bytes")
	}
	if c.selects {
		b.WriteString(",selective_seconds,selective_bytes")
	}
	if c.spreads {
		b.WriteString(",machines,context_bytes,experts,expert_parameters,expert_bytes,sequence_bytes")
	}
	last := len(c.Layers) - 1
	tied := c.Layers[last].Tied > 0
	if tied {
		b.WriteString(",tied_parameters")
	}
	b.WriteString("\n")
	for i, l := range c.Layers {
		for _, key := range l.keys() {
			for _, r := range l.Runs[key] {
				backward := ""
				if r.Backward >= 0 {
					backward = fmt.Sprint(r.Backward)
				}
				fmt.Fprintf(&b, "%d,%v,%v,%s,%d,%d,%v,%s,%v,%v", i, l.Parameters, l.Output, c.Cluster.Classes[key.Class].Device, key.Tensor, r.MicroBatch, r.Forward, backward, r.Update, r.Activation)
				if c.fixed {
					fmt.Fprintf(&b, ",%v", r.Fixed)
				}
				if c.selects {
					fmt.Fprintf(&b, ",%v,%v", r.Core, r.Freed)
				}
				if c.spreads {
					b.WriteString(l.spread(key, r))
				}
				if tied && i == last {
					fmt.Fprintf(&b, ",%v", l.Tied)
				} else if tied {
					b.WriteString(",")
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

// json is the plan file, with the twin's prediction if that is not nil.
func (c *twinCase) json(predicted *twinPrediction) string {
	type object = map[string]any
	var stages []object
	for _, s := range c.Plan.Stages {
		var groups, strategies []object
		for _, g := range s.Groups {
			groups = append(groups, object{"device": c.Cluster.Classes[g.Class].Device, "first": g.First, "count": g.Count, "tensor": g.Tensor, "micro_batches": g.Shares})
		}
		for i, st := range s.Strategies {
			o := object{"from": s.From + i, "to": s.From + i + 1, "sharding": st.Sharding, "checkpoint": st.Checkpoint}
			if st.Selective {
				o["selective"] = true
			}
			if st.Tensor > 0 {
				o["tensor"] = st.Tensor
			}
			strategies = append(strategies, o)
		}
		stages = append(stages, object{"from": s.From, "to": s.To, "groups": groups, "strategies": strategies})
	}
	plan := object{"version": 1, "global_batch": c.Plan.GlobalBatch, "micro_batch": c.Plan.MicroBatch, "stages": stages}
	if c.Plan.Context > 0 {
		plan["context"] = c.Plan.Context
	}
	if c.Plan.Experts > 0 {
		plan["experts"] = c.Plan.Experts
	}
	if c.Plan.Schedule != "" {
		plan["schedule"] = c.Plan.Schedule
	}
	if c.Plan.Warmup != nil {
		plan["warmup"] = c.Plan.Warmup
	} else if c.Plan.Overlap {
		plan["transfers"] = "overlap"
	}
	if c.Plan.Chunks > 0 {
		plan["chunks"] = c.Plan.Chunks
	}
	if predicted != nil {
		plan["predicted"] = predicted
	}
	data, err := json.MarshalIndent(plan, "", " ")
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

// flags are those of evenkeel plan check.
func (c *twinCase) flags() string {
	o := &c.Options
	precision, overlap := "mixed", fmt.Sprint(o.Compute)
	if o.W == 4 {
		precision = "fp32"
	} else if o.G == 2 {
		precision = "bf16"
	}
	if o.Off {
		overlap = "off"
	}
	flags := fmt.Sprintf("--calibration none --memory %v --precision %s --overlap %s", o.Memory, precision, overlap)
	if o.Reserve > 0 {
		flags += fmt.Sprintf(" --reserve %.0f", o.Reserve)
	}
	if o.Sequence {
		flags += " --sequence-parallel"
	}
	return flags + "\n"
}

// spread are the columns of a measurement that say what plans may spread.
func (l *twinLayer) spread(key twinKey, r twinRun) string {
	machines, experts := "", ",,"
	if key.Machines > 1 {
		machines = fmt.Sprint(key.Machines)
	}
	if l.Experts > 0 {
		experts = fmt.Sprintf("%d,%v,%v", l.Experts, l.ExpertParameters, l.ExpertBytes)
	}
	return fmt.Sprintf(",%s,%v,%s,%v", machines, l.Context, experts, r.Sequence)
}
