package clusterfile

import (
	"errors"
	"math"
	"strings"
	"testing"

	"evenkeel/cluster/profile"
)

const twoKinds = `
nodes:
  - {device: v100, count: 8, per_machine: 4, memory: 16GiB, inside: 20GB/s, link: 10Gbps, switch: b}
  - {device: a100, count: 8, per_machine: 8, memory: 40GiB, inside: {latency: 5us, start: 20us, bandwidth: {1MiB: 50GB/s, 64MiB: 200GB/s}}, link: {bandwidth: 25GB/s, latency: 10us, start: 35us}, switch: a}
switches:
  - {name: a, bandwidth: 20GB/s, up: top}
  - {name: b, latency: 1ms, start: 40us, up: top}
  - {name: top, latency: 2ms, start: 30us, secure: true}
`

func TestTopologyPaths(t *testing.T) {
	top, err := ReadTopology(strings.NewReader(twoKinds), "t.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := top.Classes[0]; a.Device != "a100" || a.Count != 8 || a.PerMachine != 8 || a.Memory != 40<<30 || a.Slowdown != 1 {
		t.Fatalf("%+v", a)
	}
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12+1e-9*want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	near("inside, half way between two rates", top.Within(0).Seconds(8<<20), 5e-6+(8<<20)/125e9)
	near("inside, beyond the rates", top.Within(0).Seconds(1<<30), 5e-6+(1<<30)/200e9)
	near("inside, below the rates", top.Within(0).Seconds(1<<10), 5e-6+(1<<10)/50e9)
	near("nothing", top.Within(0).Seconds(0), 0)
	if top.Within(0).Steady() || !top.Within(1).Steady() || !top.Between(0, 1).Steady() {
		t.Error("only a100's bandwidth within a machine depends on the size")
	}
	near("one switch", top.Between(0, 0).Seconds(1e9), 20e-6+1e9/20e9)
	near("over the top", top.Between(1, 0).Seconds(1e9), 3e-3+10e-6+1e9/1.25e9+2e9/4.7e9)
	near("one switch, not secure", top.Between(1, 1).Seconds(1e9), 1e-3+1e9/1.25e9)
	near("a collective inside", top.Within(0).Start(), 20e-6)
	near("a collective over links", top.Between(0, 0).Start(), 35e-6)
	near("a collective over the top", top.Between(0, 1).Start(), 40e-6)
	near("either way", top.Between(0, 1).Seconds(1e9), top.Between(1, 0).Seconds(1e9))
}

func TestBadTopologies(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"no nodes":     {"nodes: []", "nodes: is empty"},
		"memory":       {"nodes: [{device: x}]", "nodes[0].memory: is not known for x"},
		"alike":        {"nodes: [{device: V100@1}]", "memory: 40GiB; or do you mean one of v100, v100-16g"},
		"per machine":  {"nodes: [{device: x, memory: 1GiB, count: 6, per_machine: 4}]", "must divide the 6 devices"},
		"twice":        {"nodes: [{device: x, memory: 1GiB}, {device: x, memory: 2GiB}]", "nodes[1].device: is x, which another group has"},
		"no switch":    {"nodes: [{device: x, memory: 1GiB, switch: s}]", "nodes[0].switch: is s; there is no such switch"},
		"cycle":        {"nodes: [{device: x, memory: 1GiB, switch: s}]\nswitches:\n- {name: s, up: r}\n- {name: r, up: s}", "leads from s back to itself"},
		"disconnected": {"nodes: [{device: x, memory: 1GiB, switch: s}, {device: y, memory: 1GiB, switch: r}]\nswitches:\n- {name: s}\n- {name: r}", "no path leads from y to x"},
		"half":         {"nodes: [{device: x, memory: 1GiB, switch: s}, {device: y, memory: 1GiB}]\nswitches:\n- {name: s}", "no path leads from y to x"},
		"sizes":        {"nodes: [{device: x, memory: 1GiB, inside: {bandwidth: {2MiB: 1GB/s, 1MiB: 2GB/s}}}]", "does not rise"},
		"size":         {"nodes: [{device: x, memory: 1GiB, inside: {bandwidth: {big: 1GB/s}}}]", "has a size that"},
		"rate":         {"nodes: [{device: x, memory: 1GiB, inside: {bandwidth: {1MiB: fast}}}]", "write a bandwidth with its unit"},
	} {
		_, err := ReadTopology(strings.NewReader(c.file), "t.yaml", profile.Embedded())
		if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "t.yaml:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzTopology(f *testing.F) {
	f.Add(twoKinds)
	f.Fuzz(func(t *testing.T, text string) {
		top, err := ReadTopology(strings.NewReader(text), "t.yaml", nil)
		if err != nil {
			return
		}
		for a := range top.Classes {
			for b := range top.Classes {
				if s := top.Between(a, b).Seconds(1e6); !(s >= 0) {
					t.Fatal(s)
				}
			}
		}
	})
}
