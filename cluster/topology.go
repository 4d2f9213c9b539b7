package cluster

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster/profile"
)

// Topology is the devices of a cluster by class, and what lies between them. A device is a node; several sit in a
// machine. It is read from the same file as a Cluster, which needs neither a workload nor a batch for it.
type Topology struct {
	Classes  []Class // in the order of their names, so that the order in the file does not matter
	switches map[string]FileSwitch
}

// Class is equal devices in equal machines.
type Class struct {
	Device     string
	Count      int
	PerMachine int     // devices of a machine; divides Count
	Memory     float64 // bytes of a device
	Slowdown   float64 // of its measured times
	Inside     Level
	link       Link
	at         string // switch
}

// Level is one level of links. In a file it is a bandwidth, or a mapping of bandwidth (one, or several by size of
// message), latency and secure.
type Level struct {
	Latency Duration
	Rates   []Rate // by rising size; empty: costs no time beside the latency
	Secure  bool   // what passes is encrypted by the sender and decrypted by the receiver
}

// Rate is a bandwidth in bytes per second that messages of a size reach.
type Rate struct {
	Size      Bytes
	Bandwidth float64
}

// FileSwitch joins machines or other switches.
type FileSwitch struct {
	Name  string `yaml:"name"`
	Level `yaml:",inline"`
	Up    string `yaml:"up,omitempty"` // the switch above it
}

// Path is what a message passes.
type Path struct {
	levels []Level
}

// cryptoRate is the bytes per second that one end of a secure level encrypts or decrypts: AES-GCM in crypto/tls on one
// core, measured in experiments/planner/secure.
const cryptoRate = 4.7e9

// Seconds is the time that a message takes over the path, given its size in bytes: all latencies, the slowest bandwidth
// for that size, and encryption and decryption if a level is secure.
func (p Path) Seconds(bytes float64) float64 {
	if bytes <= 0 {
		return 0
	}
	s, slowest, secure := 0.0, math.Inf(1), false
	for _, l := range p.levels {
		s += l.Latency.std().Seconds()
		slowest = min(slowest, l.bandwidth(bytes))
		secure = secure || l.Secure
	}
	s += bytes / slowest
	if secure {
		s += 2 * bytes / cryptoRate
	}
	return s
}

// Steady reports whether messages of every size have the same bandwidth over each level.
func (p Path) Steady() bool {
	return !slices.ContainsFunc(p.levels, func(l Level) bool { return len(l.Rates) > 1 })
}

// Floor is a time that no message of so many bytes, or more, takes less than over the path: with the largest bandwidth that
// each level reaches at any size.
func (p Path) Floor(bytes float64) float64 {
	if bytes <= 0 {
		return 0
	}
	s, slowest, secure := 0.0, math.Inf(1), false
	for _, l := range p.levels {
		s += l.Latency.std().Seconds()
		most := 0.0
		for _, r := range l.Rates {
			most = max(most, r.Bandwidth)
		}
		if len(l.Rates) > 0 {
			slowest = min(slowest, most)
		}
		secure = secure || l.Secure
	}
	s += bytes / slowest
	if secure {
		s += 2 * bytes / cryptoRate
	}
	return s
}

// bandwidth is linear in the logarithm of the size between the rates, and constant beyond them.
func (l Level) bandwidth(size float64) float64 {
	n := len(l.Rates)
	if n == 0 {
		return math.Inf(1)
	}
	i := slices.IndexFunc(l.Rates, func(r Rate) bool { return float64(r.Size) >= size })
	switch {
	case i == 0:
		return l.Rates[0].Bandwidth
	case i < 0:
		return l.Rates[n-1].Bandwidth
	}
	a, b := l.Rates[i-1], l.Rates[i]
	share := math.Log(size/float64(a.Size)) / math.Log(float64(b.Size)/float64(a.Size))
	return a.Bandwidth + share*(b.Bandwidth-a.Bandwidth)
}

// Units is the topology in which so many devices of a machine count as one. Machines that they do not divide have one unit, at least.
func (t *Topology) Units(devices int) *Topology {
	u := *t
	u.Classes = slices.Clone(t.Classes)
	for i := range u.Classes {
		c := &u.Classes[i]
		machines := c.Count / c.PerMachine
		c.PerMachine = max(1, c.PerMachine/devices)
		c.Count = machines * c.PerMachine
	}
	return &u
}

// Within is the path between two devices of a machine of a class.
func (t *Topology) Within(class int) Path { return Path{[]Level{t.Classes[class].Inside}} }

// Between is the path between two machines, of the same class or of two: both machines' links and every switch up to
// the first common one.
func (t *Topology) Between(a, b int) Path {
	p, err := t.between(a, b)
	if err != nil {
		panic(err) // ReadTopology checked all pairs
	}
	return p
}

func (t *Topology) between(a, b int) (Path, error) {
	x, y := &t.Classes[a], &t.Classes[b]
	p := Path{[]Level{x.link.level(), y.link.level()}}
	up, down := t.above(x.at), t.above(y.at)
	if len(up) == 0 && len(down) == 0 {
		return p, nil
	}
	for i, name := range up {
		if j := slices.Index(down, name); j >= 0 {
			for _, s := range append(up[:i+1:i+1], down[:j]...) {
				p.levels = append(p.levels, t.switches[s].Level)
			}
			return p, nil
		}
	}
	return p, fmt.Errorf("no path leads from %s to %s; connect the switches above them with up", x.Device, y.Device)
}

// above is a switch and all above it.
func (t *Topology) above(name string) []string {
	var all []string
	for name != "" && len(all) <= len(t.switches) {
		all = append(all, name)
		name = t.switches[name].Up
	}
	return all
}

func (l Link) level() Level {
	v := Level{Latency: l.Latency}
	if l.Bandwidth > 0 {
		v.Rates = []Rate{{1, l.Bandwidth}}
	}
	return v
}

// ReadTopology parses the nodes and switches of a cluster file. name appears in errors, which wrap ErrFile and quote
// the faulty line. catalogue serves for the memory of devices where the file has none; nil: none is known.
func ReadTopology(r io.Reader, name string, catalogue *profile.Catalogue) (*Topology, error) {
	source, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cluster: %s: %w", name, err)
	}
	if len(source) > MaxFileBytes {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrFile, MaxFileBytes)
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	var f File
	var d decoder
	d.read(source, &f)
	t := &Topology{switches: map[string]FileSwitch{}}
	if len(d.problems) == 0 {
		t.join(f.Switches, &d.problems)
		for i, n := range f.Nodes {
			t.class(n, fmt.Sprintf("nodes[%d]", i), catalogue, &d.problems)
		}
		if len(t.Classes) == 0 && len(d.problems) == 0 {
			d.fault("nodes", "is empty")
		}
	}
	if len(d.problems) == 0 {
		slices.SortFunc(t.Classes, func(a, b Class) int { return strings.Compare(a.Device, b.Device) })
		for a := range t.Classes {
			for b := range a + 1 {
				if _, err := t.between(a, b); err != nil {
					d.fault("switches", "%s", err)
				}
			}
		}
	}
	if len(d.problems) > 0 {
		return nil, d.problems.error(name, source, d.lines)
	}
	return t, nil
}

// LoadTopology reads the file at path; see ReadTopology.
func LoadTopology(path string, catalogue *profile.Catalogue) (*Topology, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrFile)
	}
	return ReadTopology(f, path, catalogue)
}

func (t *Topology) join(switches []FileSwitch, p *problems) {
	for i, s := range switches {
		at := fmt.Sprintf("switches[%d]", i)
		if s.Name == "" {
			p.add(at+".name", "is missing")
		} else if _, again := t.switches[s.Name]; again {
			p.add(at+".name", "is %s, the name of another switch", s.Name)
		}
		t.switches[s.Name] = s
	}
	for i, s := range switches {
		at := fmt.Sprintf("switches[%d].up", i)
		if _, ok := t.switches[s.Up]; s.Up != "" && !ok {
			p.add(at, "is %s; there is no such switch", clip(s.Up))
		}
		if len(t.above(s.Name)) > len(switches) {
			p.add(at, "leads from %s back to itself", s.Name)
		}
	}
}

func (t *Topology) class(n FileNode, at string, catalogue *profile.Catalogue, p *problems) {
	c := Class{Device: n.Device, Count: 1, PerMachine: 1, Memory: float64(n.Memory), Slowdown: n.Slowdown, link: n.Link, at: n.Switch}
	if n.Count != nil {
		c.Count = *n.Count
	}
	if n.PerMachine != nil {
		c.PerMachine = *n.PerMachine
	}
	if n.Inside != nil {
		c.Inside = *n.Inside
	}
	if c.Slowdown == 0 {
		c.Slowdown = 1
	}
	if c.Memory == 0 && catalogue != nil {
		if d, ok := catalogue.Device(n.Device); ok {
			c.Memory = float64(d.MemoryBytes)
		}
	}
	switch {
	case c.Device == "":
		p.add(at+".device", "is missing")
	case slices.ContainsFunc(t.Classes, func(o Class) bool { return o.Device == c.Device }):
		p.add(at+".device", "is %s, which another group has; write them as one group, or rename one of the devices", clip(c.Device))
	case c.Count < 1 || c.Count > MaxNodes:
		p.add(at+".count", "is %d; must lie in 1..%d", c.Count, MaxNodes)
	case c.PerMachine < 1 || c.Count%c.PerMachine != 0:
		p.add(at+".per_machine", "is %d; must divide the %d devices", c.PerMachine, c.Count)
	case c.Memory == 0:
		p.add(at+".memory", "is not known for %s; write it, for example memory: 40GiB", clip(c.Device))
	}
	p.within(at+".slowdown", c.Slowdown, 0.01, 100)
	if _, ok := t.switches[c.at]; c.at != "" && !ok {
		p.add(at+".switch", "is %s; there is no such switch", clip(c.at))
	}
	t.Classes = append(t.Classes, c)
}

// WithCounts is the topology with so many devices of each class, in its order, the first machines of each; 0: without the class.
func (t *Topology) WithCounts(counts []int) *Topology {
	c := &Topology{switches: t.switches}
	for i, k := range t.Classes {
		if k.Count = counts[i]; k.Count > 0 {
			c.Classes = append(c.Classes, k)
		}
	}
	return c
}

// WithMemory is the topology with the memory of every device multiplied.
func (t *Topology) WithMemory(times float64) *Topology {
	more := *t
	more.Classes = slices.Clone(t.Classes)
	for i := range more.Classes {
		more.Classes[i].Memory *= times
	}
	return &more
}
