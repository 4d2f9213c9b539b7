package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/badinput"
)

// Topology is the devices of a cluster by class, and what lies between them. A device is a node; several sit in a
// machine. The planner works on it; the tuner needs a [Cluster] only.
type Topology struct {
	Classes  []Class // in the order of their names, so that the order in the file does not matter
	switches map[string]Switch
}

// Class is equal devices in equal machines.
type Class struct {
	Device     string // of cards in unlike machines, name@machine
	Count      int
	PerMachine int     // devices of a machine; divides Count
	Memory     float64 // bytes of a device
	Slowdown   float64 // true over measured times
	Inside     Level
	Link       Level  // from a machine to its switch
	Switch     string // "": a core that joins all machines and costs nothing
}

// Card is what a device is, wherever it sits: its name up to an @.
func Card(device string) string {
	card, _, _ := strings.Cut(device, "@")
	return card
}

// Level is one level of links.
type Level struct {
	Latency time.Duration
	Start   time.Duration // of a collective, beside its messages
	Rates   []Rate        // by rising size; empty: costs no time beside the latency
	Secure  bool          // the sender encrypts messages and the receiver decrypts them
}

// Rate is a bandwidth in bytes per second that messages of a size reach.
type Rate struct {
	Size      int64 // bytes
	Bandwidth float64
}

// Switch joins machines or other switches.
type Switch struct {
	Name  string
	Level Level
	Up    string // the switch above it; "": none
}

// NewTopology joins classes by switches. It sorts the classes by device. The error lists the
// faulty switches, or else the classes that no path joins, by field.
func NewTopology(classes []Class, switches []Switch) (*Topology, error) {
	t := &Topology{Classes: classes, switches: map[string]Switch{}}
	var faults badinput.Faults
	for i, s := range switches {
		at := fmt.Sprintf("switches[%d].name", i)
		if s.Name == "" {
			faults.Add(at, "is missing")
		} else if _, again := t.switches[s.Name]; again {
			faults.Add(at, "is %s, the name of another switch", s.Name)
		}
		t.switches[s.Name] = s
	}
	for i, s := range switches {
		at := fmt.Sprintf("switches[%d].up", i)
		if _, ok := t.switches[s.Up]; s.Up != "" && !ok {
			faults.Add(at, "is %.40s; there is no such switch", s.Up)
		}
		if len(t.above(s.Name)) > len(switches) {
			faults.Add(at, "leads from %s back to itself", s.Name)
		}
	}
	if len(faults) > 0 {
		return nil, faults.Err()
	}
	slices.SortFunc(t.Classes, func(a, b Class) int { return strings.Compare(a.Device, b.Device) })
	for a := range t.Classes {
		for b := range a + 1 {
			if _, err := t.between(a, b); err != nil {
				faults.Add("switches", "%s", err)
			}
		}
	}
	if len(faults) > 0 {
		return nil, faults.Err()
	}
	return t, nil
}

// Path is what a message passes.
type Path struct {
	levels []Level
}

// cryptoRate is the bytes per second that one end of a secure level encrypts or decrypts: AES-GCM in crypto/tls on one
// core.
const cryptoRate = 4.7e9

// Seconds is the time that a message takes over the path, given its size in bytes: all latencies, the slowest bandwidth
// for that size, and encryption and decryption if a level is secure.
func (p Path) Seconds(bytes float64) float64 {
	return p.seconds(bytes, func(l Level) float64 { return l.bandwidth(bytes) })
}

// Start is the seconds that a collective over the path takes beside its messages.
func (p Path) Start() float64 {
	s := 0.0
	for _, l := range p.levels {
		s = max(s, l.Start.Seconds())
	}
	return s
}

// Floor is a lower bound of the time that a message of so many bytes, or more, takes over the path: with the largest bandwidth
// that each level reaches at any size.
func (p Path) Floor(bytes float64) float64 { return p.seconds(bytes, Level.mostBandwidth) }

func (p Path) seconds(bytes float64, bandwidth func(Level) float64) float64 {
	if bytes <= 0 {
		return 0
	}
	s, slowest, secure := 0.0, math.Inf(1), false
	for _, l := range p.levels {
		s += l.Latency.Seconds()
		slowest = min(slowest, bandwidth(l))
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

// mostBandwidth is the largest at any size.
func (l Level) mostBandwidth() float64 {
	if len(l.Rates) == 0 {
		return math.Inf(1)
	}
	return slices.MaxFunc(l.Rates, func(a, b Rate) int { return cmp.Compare(a.Bandwidth, b.Bandwidth) }).Bandwidth
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

// Units is the topology in which so many devices of a machine count as one unit. Every machine has at least one.
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
		panic(err) // NewTopology checked all pairs
	}
	return p
}

func (t *Topology) between(a, b int) (Path, error) {
	x, y := &t.Classes[a], &t.Classes[b]
	p := Path{[]Level{x.Link, y.Link}}
	up, down := t.above(x.Switch), t.above(y.Switch)
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

// WithCounts is the topology with so many devices of each class, in the order of Classes; 0: without the class.
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
