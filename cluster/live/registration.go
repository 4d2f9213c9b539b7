package live

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// Limits of what a registration may hold.
const (
	MaxRanks = 10_000
	maxName  = 253 // bytes of a name, as in a sizes file
	maxFault = 20  // faults that are listed at once
)

// Registration is what a job sends when its process group starts.
type Registration struct {
	GlobalBatch int
	Collect     clusterfile.Collect // when rounds end; the zero value: with the last gradient
	EqualSteps  int                 // micro-steps that every rank makes in a round; 0: each as few as its memory allows
	Ranks       []Rank              // in rank order
}

// Rank is one process of the job.
type Rank struct {
	Name        string     `json:"name" minLength:"1" maxLength:"253" doc:"Unique in the job, and the same after a restart so that the rank's history is kept; for example host/local rank"`
	Host        string     `json:"host,omitempty" maxLength:"253" doc:"Machine of the rank"`
	Device      string     `json:"device,omitempty" maxLength:"253" doc:"Name of the device by torch (NVIDIA A10G) or by evenkeel profiles list"`
	MemoryBytes int64      `json:"memory_bytes,omitempty" minimum:"0" doc:"Memory of the device; 0: unknown"`
	MicroBatch  MicroBatch `json:"micro_batch,omitzero" doc:"Micro-batches that the rank can take"`
}

// MicroBatch bounds or lists the micro-batches of a rank. The zero value: any that the batch allows.
type MicroBatch struct {
	Least int   `json:"least,omitempty" minimum:"0" maximum:"1073741824" doc:"Smallest micro-batch; 0: 1"`
	Most  int   `json:"most,omitempty" minimum:"0" maximum:"1073741824" doc:"Largest micro-batch; 0: as large as the global batch allows, until memory runs out"`
	Sizes []int `json:"sizes,omitempty" maxItems:"1024" nullable:"false" doc:"All possible micro-batches, rising; none: any from least to most"`
}

// Fault is one thing that is wrong with what a job sent.
type Fault = badinput.Fault

// Faults are what is wrong with what a job sent, by field. They are bad input.
type Faults badinput.Faults

func (f Faults) Error() string { return f.join("live: ", ": ", "\n") }

// String lists the faults in one line, without the package's name.
func (f Faults) String() string { return f.join("", " ", "; ") }

func (f Faults) join(before, between, after string) string {
	texts := make([]string, len(f))
	for i, x := range f {
		texts[i] = before + x.Path + between + x.Text
	}
	return strings.Join(texts, after)
}

// fault is one fault as an error.
func fault(path, format string, args ...any) error {
	var f badinput.Faults
	f.Add(path, format, args...)
	return asError(f)
}

// asError returns the first maxFault faults as one error, nil if there are none.
func asError(f badinput.Faults) error {
	if len(f) == 0 {
		return nil
	}
	return badinput.Wrap(Faults(f[:min(len(f), maxFault)]))
}

// Validate reports every fault, as Faults.
func (r *Registration) Validate() error {
	var f badinput.Faults
	if r.GlobalBatch < 1 || r.GlobalBatch > cluster.MaxGlobalBatch {
		f.Add("global_batch", "is %d; it must lie in 1..%d samples", r.GlobalBatch, cluster.MaxGlobalBatch)
	}
	if r.EqualSteps < 0 || r.EqualSteps > cluster.MaxMicroSteps {
		f.Add("equal_steps", "is %d; it must lie in 0..%d", r.EqualSteps, cluster.MaxMicroSteps)
	} else if r.EqualSteps > 0 && r.Collect.Deadline != nil {
		f.Add("equal_steps", "is %d, but ranks that end at a deadline make different numbers of micro-steps; leave equal_steps or deadline out", r.EqualSteps)
	}
	if n := len(r.Ranks); n < 1 || n > MaxRanks {
		f.Add("ranks", "%d ranks; there must be 1 to %d", n, MaxRanks)
	}
	names := make(map[string]int, len(r.Ranks))
	for i := range r.Ranks {
		x, path := &r.Ranks[i], fmt.Sprintf("ranks[%d]", i)
		if x.Name == "" {
			f.Add(path+".name", "is missing; give each rank a name that it keeps, for example host/local rank")
		}
		for _, t := range []struct{ field, text string }{{"name", x.Name}, {"host", x.Host}, {"device", x.Device}} {
			if !printable(t.text) {
				f.Add(path+"."+t.field, "must be at most %d bytes of printable text", maxName)
			}
		}
		if first, taken := names[x.Name]; taken {
			f.Add(path+".name", "%q is also the name of rank %d; names must be unique", x.Name, first)
		}
		names[x.Name] = i
		if x.MemoryBytes < 0 {
			f.Add(path+".memory_bytes", "is %d; it must be at least 0", x.MemoryBytes)
		}
		x.MicroBatch.check(path+".micro_batch", &f)
	}
	return asError(f)
}

func (m *MicroBatch) check(path string, f *badinput.Faults) {
	switch {
	case m.Least < 0 || m.Least > cluster.MaxGlobalBatch:
		f.Add(path+".least", "is %d; it must lie in 0..%d", m.Least, cluster.MaxGlobalBatch)
	case m.Most < 0 || m.Most > cluster.MaxGlobalBatch || m.Most > 0 && m.Most < m.Least:
		f.Add(path+".most", "is %d; it must be 0, or lie in %d..%d", m.Most, max(m.Least, 1), cluster.MaxGlobalBatch)
	}
	for i, s := range m.Sizes {
		if s < 1 || s > cluster.MaxGlobalBatch || i > 0 && s <= m.Sizes[i-1] {
			f.Add(fmt.Sprintf("%s.sizes[%d]", path, i), "is %d; sizes must lie in 1..%d and rise", s, cluster.MaxGlobalBatch)
			return
		}
	}
	if len(m.Sizes) > 0 && (m.Least > m.Sizes[0] || m.Most > 0 && m.Most < m.Sizes[len(m.Sizes)-1]) {
		f.Add(path, "has sizes outside least and most; leave least and most out")
	}
}

func printable(s string) bool {
	return len(s) <= maxName && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Cluster returns the job as a cluster with a node per rank. A rank has a profile if the catalogue has
// the workload on its device; the controller learns the pace of others. Validate must have passed. An error is bad input.
func (r *Registration) Cluster(workload string, catalogue *profile.Catalogue) (*cluster.Cluster, error) {
	c := &cluster.Cluster{Workload: cmp.Or(workload, "unnamed"), GlobalBatch: r.GlobalBatch, Nodes: make([]cluster.Node, len(r.Ranks))}
	model, _ := catalogue.Workload(workload)
	for i := range r.Ranks {
		x := &r.Ranks[i]
		n := cluster.Node{Name: x.Name, Device: cmp.Or(x.Device, "unknown"), Limit: r.GlobalBatch, Least: x.MicroBatch.Least, Shapes: x.MicroBatch.Sizes}
		if device, p := known(x.Device, workload, catalogue); p != nil {
			n.Device, n.Profile, n.TFLOPS = device.Name, p, device.TFLOPS(model.DType)
			n.Power = cluster.Power{Idle: device.IdleWatts, Busy: device.BusyWatts}
			// How a job shards its state is unknown, so an estimate that leaves no room is ignored.
			if limit := cluster.MemoryLimit(p, model, x.MemoryBytes, len(r.Ranks)); limit >= n.LeastStep() {
				n.Limit = min(n.Limit, limit)
			}
		}
		if x.MicroBatch.Most > 0 {
			n.Limit = min(n.Limit, x.MicroBatch.Most)
		}
		c.Nodes[i] = n
	}
	c.SetEqualSteps(r.EqualSteps)
	if err := r.Collect.Apply(c); err != nil {
		return nil, badinput.Wrap(err)
	}
	if err := c.MakesUp(); err != nil {
		return nil, badinput.Wrap(err)
	}
	return c, nil
}
