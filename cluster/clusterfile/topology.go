package clusterfile

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// ReadTopology parses the nodes and switches of a cluster file, which needs no workload and no batch for this.
// name appears in errors, which wrap ErrFile and quote the faulty line. The catalogue (nil: none) gives the memory of
// devices for which the file has none.
func ReadTopology(r io.Reader, name string, catalogue *profile.Catalogue) (*cluster.Topology, error) {
	var f File
	d, source, err := decode(r, name, &f)
	if err != nil {
		return nil, err
	}
	var t *cluster.Topology
	if len(d.faults) == 0 {
		t = f.topology(catalogue, &d.faults)
	}
	if len(d.faults) > 0 {
		return nil, fileError(d.faults, name, source, d.lines)
	}
	return t, nil
}

// LoadTopology reads the file at path; see ReadTopology.
func LoadTopology(path string, catalogue *profile.Catalogue) (*cluster.Topology, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadTopology(f, path, catalogue)
}

func (f *File) topology(catalogue *profile.Catalogue, p *badinput.Faults) *cluster.Topology {
	var classes []cluster.Class
	var switches []cluster.Switch
	names := map[string]bool{"": true}
	for _, s := range f.Switches {
		switches = append(switches, cluster.Switch(s))
		names[s.Name] = true
	}
	for i, g := range f.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		if slices.ContainsFunc(classes, func(o cluster.Class) bool { return o.Device == g.Device }) && g.Device != "" {
			p.Add(at+".device", "is %s, which another group has; write them as one group, or rename one of the devices", clip(g.Device))
			continue
		}
		if !names[g.Switch] {
			p.Add(at+".switch", "is %s; there is no such switch", clip(g.Switch))
		}
		classes = append(classes, g.class(at, catalogue, p))
	}
	if len(classes) == 0 && len(*p) == 0 {
		p.Add("nodes", "is empty")
	}
	if len(*p) > 0 {
		classes = nil // only the switches are still checked
	}
	t, err := cluster.NewTopology(classes, switches)
	p.Under("", err)
	return t
}

// class converts the group to a class of a topology.
func (g *Group) class(at string, catalogue *profile.Catalogue, p *badinput.Faults) cluster.Class {
	c := cluster.Class{Device: g.Device, Count: g.size(), PerMachine: 1, Memory: float64(g.Memory), Slowdown: cmp.Or(g.Slowdown, 1), Link: g.Link.level(), Switch: g.Switch}
	if g.PerMachine != nil {
		c.PerMachine = *g.PerMachine
	}
	if g.Inside != nil {
		c.Inside = cluster.Level(*g.Inside)
	}
	if c.Memory == 0 && catalogue != nil {
		if d, ok := catalogue.Device(cluster.Card(g.Device)); ok {
			c.Memory = float64(d.MemoryBytes)
		}
	}
	switch {
	case c.Device == "":
		p.Add(at+".device", "is missing")
	case c.Count < 1 || c.Count > cluster.MaxNodes:
		p.Add(at+".count", "is %d; must lie in 1..%d", c.Count, cluster.MaxNodes)
	case c.PerMachine < 1 || c.Count%c.PerMachine != 0:
		p.Add(at+".per_machine", "is %d; must divide the %d devices", c.PerMachine, c.Count)
	case c.Memory == 0:
		p.Add(at+".memory", "is not known for %s; write it, for example memory: 40GiB%s", clip(c.Device), alike(catalogue, c.Device))
	}
	p.Within(at+".slowdown", c.Slowdown, 0.01, 100)
	return c
}

// alike names the devices of the catalogue whose names begin as this one, in any spelling.
func alike(catalogue *profile.Catalogue, device string) (text string) {
	if catalogue == nil {
		return ""
	}
	plain := strings.NewReplacer("-", "", "_", "", " ", "")
	for _, d := range catalogue.Devices() {
		if strings.HasPrefix(plain.Replace(d.Name), plain.Replace(strings.ToLower(cluster.Card(device)))) {
			text += ", " + d.Name
		}
	}
	return strings.Replace(text, ", ", "; or do you mean one of ", 1)
}

// level converts the link to a level of a topology.
func (l Link) level() cluster.Level {
	v := cluster.Level{Latency: l.Latency.std(), Start: l.Start.std()}
	if l.Bandwidth > 0 {
		v.Rates = []cluster.Rate{{Size: 1, Bandwidth: l.Bandwidth}}
	}
	return v
}

// Level is a cluster.Level: a bandwidth, or a mapping of bandwidth (one, or several by size of
// message), latency, start and secure.
type Level cluster.Level

func (l *Level) decode(d *decoder, path string, node ast.Node) {
	var m levelFields
	if _, ok := text(node); ok {
		m.Bandwidth.decode(d, path, node)
	} else {
		d.fields(path, node, reflect.ValueOf(&m).Elem())
	}
	*l = Level(m.level())
}

// levelFields is a Level in its long form.
type levelFields struct {
	Bandwidth rates    `yaml:"bandwidth"`
	Latency   Duration `yaml:"latency"`
	Start     Duration `yaml:"start"`
	Secure    bool     `yaml:"secure"`
}

func (m levelFields) level() cluster.Level {
	return cluster.Level{Latency: time.Duration(m.Latency), Start: time.Duration(m.Start), Rates: m.Bandwidth, Secure: m.Secure}
}

// Switch is a cluster.Switch: a level with a name, and the switch above it.
type Switch cluster.Switch

func (s *Switch) decode(d *decoder, path string, node ast.Node) {
	var m struct {
		Name        string `yaml:"name"`
		Up          string `yaml:"up"`
		levelFields `yaml:",inline"`
	}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*s = Switch{Name: m.Name, Level: m.level(), Up: m.Up}
}

// rates is one bandwidth, or a mapping of message sizes to bandwidths.
type rates []cluster.Rate

func (r *rates) decode(d *decoder, path string, node ast.Node) {
	if _, ok := text(node); ok {
		var b bandwidth
		d.scalar(path, node, &b)
		*r = rates{{Size: 1, Bandwidth: float64(b)}}
		return
	}
	list, ok := entries(node)
	if !ok || len(list) == 0 {
		d.fault(path, "must be a bandwidth, or a mapping of sizes to bandwidths as {1MiB: 2GB/s, 64MiB: 4GB/s}")
		return
	}
	for _, e := range list {
		key, _ := text(e.Key)
		var size Bytes
		if err := size.parse(key); err != nil {
			d.fault(path, "has a size that %s", err)
			return
		}
		var b bandwidth
		at := path + "." + keyText(e.Key)
		d.lines[at] = e.Key.GetToken().Position.Line
		d.value(at, e.Value, reflect.ValueOf(&b).Elem())
		if n := len(*r); n > 0 && (*r)[n-1].Size >= int64(size) {
			d.fault(at, "does not rise from the size before it")
			return
		}
		*r = append(*r, cluster.Rate{Size: int64(size), Bandwidth: float64(b)})
	}
}
