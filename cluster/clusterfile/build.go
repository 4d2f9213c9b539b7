package clusterfile

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/dustin/go-humanize"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// builder makes a Cluster of a File.
type builder struct {
	file      *File
	catalogue *profile.Catalogue
	faults    *badinput.Faults
	written   map[string]int
	cluster   cluster.Cluster
	model     profile.Workload
	known     bool            // the catalogue has the workload
	total     int             // nodes
	names     map[string]bool // taken
	serial    map[string]int  // next number of a group's nodes, by the group's name
	hosts     map[string]int  // the group that names a host first
}

// workload looks the workload up, so that an unknown one is reported once and not for
// every node.
func (b *builder) workload() {
	name := b.file.Workload
	if name == "" {
		b.faults.Add("workload", "missing; name one that the profiles hold (evenkeel profiles list)")
		return
	}
	if b.model, b.known = b.catalogue.Workload(name); b.known {
		return
	}
	text := fmt.Sprintf("unknown workload %q", clip(name))
	if devices := b.catalogue.Devices(); len(devices) > 0 {
		_, err := b.catalogue.Lookup(devices[0].Name, name)
		text = err.Error()
	}
	b.faults.Add("workload", "%s", text)
}

// count sets total, 0 if the counts are out of range.
func (b *builder) count() {
	total, good := 0, true
	for i := range b.file.Nodes {
		n := b.file.Nodes[i].size()
		if n < 1 || n > cluster.MaxNodes || total+n > cluster.MaxNodes {
			b.faults.Add(fmt.Sprintf("nodes[%d].count", i), "is %d; it must be at least 1, and all nodes together at most %d", n, cluster.MaxNodes)
			good = false
			continue
		}
		total += n
	}
	if good && total < 2 {
		b.faults.Add("nodes", "%d given; a cluster needs at least 2", total)
	}
	if good {
		b.total = total
	}
}

func (g *Group) size() int {
	if g.Count == nil {
		return 1
	}
	return *g.Count
}

// nodeName is what tables, environment variables and Kubernetes all accept.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// group appends the nodes of group i of the file.
func (b *builder) group(i int) {
	g, path, before := &b.file.Nodes[i], fmt.Sprintf("nodes[%d]", i), len(*b.faults)
	if _, ok := b.written[path+".slowdown"]; ok || g.Slowdown != 0 {
		b.faults.Within(path+".slowdown", g.Slowdown, 0.01, 100)
	}
	if _, ok := b.written[path+".name"]; (ok || g.Name != "") && !nodeName.MatchString(g.Name) {
		b.faults.Add(path+".name", "is %q; a name is 1 to 63 letters, digits and, not first, - . _", clip(g.Name))
	}
	b.place(i, path)
	if g.Device == "" {
		b.faults.Add(path+".device", "missing; evenkeel profiles list shows what is known")
		return
	}
	device, ok := b.catalogue.Device(g.Device)
	if ok && !b.known {
		return // reported once, for the workload
	}
	p, err := b.catalogue.Lookup(g.Device, b.file.Workload)
	if err != nil {
		b.faults.Add(path+".device", "%s", err)
		return
	}
	n := cluster.Node{Device: g.Device, Profile: p, Limit: profile.NoLimit, TFLOPS: device.TFLOPS(b.model.DType), Host: g.Host, Rack: g.Rack}
	b.memory(&n, g, device, path)
	b.microBatch(&n, g, path+".micro_batch")
	b.network(&n, g, path)
	b.power(&n, g, device, path+".power")
	n.Hidden.Slowdown = g.Slowdown
	if g.Fits != nil {
		if n.Hidden.Limit = *g.Fits; n.Hidden.Limit < 1 || n.Hidden.Limit > cluster.MaxGlobalBatch {
			b.faults.Add(path+".fits", "is %d; it must lie in 1..%d samples: the largest micro-batch that memory really holds", n.Hidden.Limit, cluster.MaxGlobalBatch)
		}
	}
	if g.Profiled != nil && !*g.Profiled {
		n.Profile, n.Hidden.Profile = nil, p
	}
	if len(*b.faults) == before {
		b.add(n, g, path)
	}
}

// place checks the host and the rack of group i.
func (b *builder) place(i int, path string) {
	g := &b.file.Nodes[i]
	for _, f := range [][2]string{{path + ".host", g.Host}, {path + ".rack", g.Rack}} {
		field, name := f[0], f[1]
		if _, ok := b.written[field]; (ok || name != "") && !nodeName.MatchString(name) {
			b.faults.Add(field, "is %q; a name is 1 to 63 letters, digits and, not first, - . _", clip(name))
		}
	}
	if g.Host == "" {
		return
	}
	first, known := b.hosts[g.Host]
	if !known {
		b.hosts[g.Host] = i
	} else if rack := b.file.Nodes[first].Rack; rack != g.Rack {
		b.faults.Add(path+".rack", "is %q, but nodes[%d] has host %s in rack %q; a host is in one rack", clip(g.Rack), first, clip(g.Host), clip(rack))
	}
}

// memory sets the node's limit.
func (b *builder) memory(n *cluster.Node, g *Group, device profile.Device, path string) {
	memory := cmp.Or(int64(g.Memory), device.MemoryBytes)
	if n.Limit = cluster.MemoryLimit(n.Profile, b.model, memory, b.total); n.Limit < 1 {
		b.faults.Add(path+".memory", "%s cannot hold one sample of %s beside the node's part of the model state, %s; give more memory, or more nodes to share the state",
			humanize.IBytes(uint64(memory)), b.file.Workload, humanize.IBytes(uint64(b.model.StateBytes(b.total))))
	}
}

// network sets the time that the node's gradient takes.
func (b *builder) network(n *cluster.Node, g *Group, path string) {
	gradient := int64(b.file.Gradient)
	if gradient == 0 {
		gradient = 4 * b.model.Parameters
		if b.model.DType == "fp16" {
			gradient = 2 * b.model.Parameters
		}
	}
	if g.Link.Bandwidth > 0 && gradient == 0 {
		b.faults.Add(path+".link", "the size of a gradient of %s is unknown; set it, for example gradient: 2.6GB", b.file.Workload)
	}
	n.Network = g.Link.seconds(gradient)
}

// power sets what the node draws. A file gives both values or none: without idle, waiting
// would look free.
func (b *builder) power(n *cluster.Node, g *Group, device profile.Device, path string) {
	n.Power = cluster.Power{Idle: device.IdleWatts, Busy: device.BusyWatts}
	if g.Power == nil {
		return
	}
	n.Power = *g.Power
	for _, field := range []string{".idle", ".busy"} {
		if _, ok := b.written[path+field]; !ok {
			b.faults.Add(path+field, "missing; give both watts, power: {idle: 30, busy: 250}")
			return
		}
	}
	b.faults.Within(path+".idle", n.Power.Idle, 0, maxWatts)
	b.faults.Within(path+".busy", n.Power.Busy, min(max(n.Power.Idle, 0), maxWatts), maxWatts)
}

// add appends the group's count of n, each with its own name.
func (b *builder) add(n cluster.Node, g *Group, path string) {
	count, base := g.size(), cmp.Or(g.Name, g.Device)
	if g.Name != "" && count == 1 {
		if b.names[base] {
			b.faults.Add(path+".name", "%q is taken by another node", base)
			return
		}
		n.Name, b.names[base] = base, true
		b.cluster.Nodes = append(b.cluster.Nodes, n)
		return
	}
	for count > 0 {
		n.Name = fmt.Sprintf("%s-%d", base, b.serial[base])
		b.serial[base]++
		if !b.names[n.Name] {
			b.names[n.Name] = true
			b.cluster.Nodes = append(b.cluster.Nodes, n)
			count--
		}
	}
}

// microBatch sets which micro-batches the node takes, within what its memory holds.
func (b *builder) microBatch(n *cluster.Node, g *Group, path string) {
	m := g.MicroBatch
	if m == nil {
		return
	}
	if len(m.Shapes) == 0 {
		n.Least = m.Least
		if n.Limit >= 1 && m.Least > n.Limit {
			b.faults.Add(path+".least", "is %d, but the memory of %s holds %d; lower it, or give more memory", m.Least, g.Device, n.Limit)
		}
		if m.Most > 0 {
			n.Limit = min(n.Limit, m.Most)
		}
		return
	}
	for i, s := range m.Shapes {
		if s < 1 || i > 0 && s <= m.Shapes[i-1] {
			b.faults.Add(fmt.Sprintf("%s[%d]", path, i), "is %d; sizes must be at least 1 and rise", s)
			return
		}
	}
	if n.Limit >= 1 && m.Shapes[0] > n.Limit {
		b.faults.Add(path, "begins at %d, but the memory of %s holds %d; list a smaller size, or give more memory", m.Shapes[0], g.Device, n.Limit)
	}
	n.Shapes = slices.Clone(m.Shapes)
	n.Limit = min(n.Limit, m.Shapes[len(m.Shapes)-1])
}
