package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/evenkeel/evenkeel/cluster/profile"
)

// Limits on what a cluster file may hold.
const (
	MaxFileBytes   = 1 << 20
	MaxNodes       = 100_000
	MaxGlobalBatch = 1 << 30
)

// stateBytes is what parameters, gradients and Adam's moments take per parameter. The
// catalogue's peak memory leaves this state out, as its source shards it evenly over
// the nodes; so it is taken off every node's memory.
const stateBytes = 16

// ErrFile marks every error about the content of a cluster file: bad input, not a
// failure of the machine.
var ErrFile = errors.New("invalid cluster file")

// File is a cluster file as written: see docs/formats/cluster.md.
type File struct {
	Workload    string         `yaml:"workload"`
	GlobalBatch int            `yaml:"global_batch"`
	Gradient    Bytes          `yaml:"gradient,omitempty"` // size of one gradient; default: 4 or 2 bytes per parameter
	Nodes       []FileNode     `yaml:"nodes"`
	Collect     FileCollect    `yaml:"collect,omitempty"`
	Conditions  FileConditions `yaml:"conditions,omitempty"`
	Objectives  Objectives     `yaml:"objectives,omitempty"`
}

// FileNode is a group of equal nodes.
type FileNode struct {
	Name     string  `yaml:"name,omitempty"`   // default: the device's name; "-0", "-1", ... are added where there are several
	Device   string  `yaml:"device"`           // of the catalogue or a --profiles file
	Count    *int    `yaml:"count,omitempty"`  // default 1
	Memory   Bytes   `yaml:"memory,omitempty"` // default: the device's
	Slowdown float64 `yaml:"slowdown,omitempty"`
	Link     Link    `yaml:"link,omitempty"`
	Profiled *bool   `yaml:"profiled,omitempty"` // false: the controller is not shown the profile
}

// FileCollect is the collect section.
type FileCollect struct {
	Quorum       Share    `yaml:"quorum,omitempty"`
	Grace        Grace    `yaml:"grace,omitempty"`
	MaxStaleness Duration `yaml:"max_staleness,omitempty"`
	Timeout      Duration `yaml:"timeout,omitempty"`
}

// Objectives are the weights of what is wanted. They must be finite, none negative,
// not all zero; only their proportions count. The zero value means speed alone.
type Objectives struct {
	Speed     float64 `yaml:"speed,omitempty" json:"speed"`
	Waiting   float64 `yaml:"waiting,omitempty" json:"waiting"`
	Freshness float64 `yaml:"freshness,omitempty" json:"freshness"`
}

// Read parses a cluster file and checks it against the catalogue. name appears in
// errors, which wrap ErrFile and quote the faulty line.
func Read(r io.Reader, name string, catalogue *profile.Catalogue) (*File, *Cluster, error) {
	source, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: %s: %w", name, err)
	}
	if len(source) > MaxFileBytes {
		return nil, nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrFile, MaxFileBytes)
	}
	var f File
	if err := yaml.UnmarshalWithOptions(source, &f, yaml.Strict()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %s", name, ErrFile, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	c, problems := f.build(catalogue)
	if len(problems) > 0 {
		return nil, nil, problems.error(name, source)
	}
	return &f, c, nil
}

// Load reads the cluster file at path; see Read.
func Load(path string, catalogue *profile.Catalogue) (*File, *Cluster, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: %w", err)
	}
	defer f.Close()
	return Read(f, path, catalogue)
}

// problem is one fault of a file, with the YAML path of its field.
type problem struct{ path, text string }

type problems []problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, problem{path, fmt.Sprintf(format, args...)})
}

// error joins the problems, each with the line of its field and that line quoted.
func (p problems) error(name string, source []byte) error {
	file, parseErr := parser.ParseBytes(source, 0)
	lines := strings.Split(string(source), "\n")
	errs := make([]error, 0, len(p))
	for _, q := range p {
		where, quote := name, ""
		if parseErr == nil {
			if n := lineOf(file, q.path); n > 0 && n <= len(lines) {
				where, quote = fmt.Sprintf("%s:%d", name, n), fmt.Sprintf("\n  %d | %s", n, lines[n-1])
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w: %s: %s%s", where, ErrFile, q.path, q.text, quote))
	}
	return errors.Join(errs...)
}

// lineOf finds the line of a field, or of the nearest enclosing one that is written.
func lineOf(file *ast.File, path string) int {
	for path != "" {
		if p, err := yaml.PathString("$." + path); err == nil {
			if n, err := p.FilterFile(file); err == nil && n != nil {
				return n.GetToken().Position.Line
			}
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// build turns the file into a cluster, or says everything that is wrong with it.
func (f *File) build(catalogue *profile.Catalogue) (*Cluster, problems) {
	var p problems
	if f.Workload == "" {
		p.add("workload", "missing; name one that the profiles hold (evenkeel profiles list)")
	}
	if f.GlobalBatch < 1 || f.GlobalBatch > MaxGlobalBatch {
		p.add("global_batch", "is %d; it must lie in 1..%d samples", f.GlobalBatch, MaxGlobalBatch)
	}
	c := &Cluster{Workload: f.Workload, GlobalBatch: f.GlobalBatch}
	count := 0
	for i := range f.Nodes {
		n := 1
		if f.Nodes[i].Count != nil {
			n = *f.Nodes[i].Count
		}
		if n < 1 || n > MaxNodes || count+n > MaxNodes {
			p.add(fmt.Sprintf("nodes[%d].count", i), "is %d; it must be at least 1, and all nodes together at most %d", n, MaxNodes)
			return nil, p
		}
		count += n
	}
	if count < 2 {
		p.add("nodes", "%d node; a cluster needs at least 2", count)
	}
	names := map[string]bool{}
	for i := range f.Nodes {
		f.addNodes(c, i, count, names, catalogue, &p)
	}
	c.Collect = f.Collect.build(count, &p)
	if err := f.Conditions.Conditions.Validate(); err != nil {
		for _, line := range strings.Split(err.Error(), "\n") {
			field, text, _ := strings.Cut(line, " ")
			p.add("conditions."+field, "%s", text)
		}
	}
	if err := f.Objectives.Validate(); err != nil {
		p.add("objectives", "%s", err)
	}
	if len(p) == 0 {
		if err := c.CheckCapacity(nil); err != nil {
			p.add("global_batch", "%s", err)
		}
	}
	return c, p
}

// addNodes appends group i of the file.
func (f *File) addNodes(c *Cluster, i, total int, names map[string]bool, catalogue *profile.Catalogue, p *problems) {
	g := &f.Nodes[i]
	path := fmt.Sprintf("nodes[%d]", i)
	if g.Slowdown != 0 && !(g.Slowdown >= 0.01 && g.Slowdown <= 100) {
		p.add(path+".slowdown", "is %v; it must lie in 0.01..100 (1: as profiled)", g.Slowdown)
	}
	if g.Device == "" {
		p.add(path+".device", "missing; evenkeel profiles list shows what is known")
		return
	}
	if f.Workload == "" {
		return
	}
	pr, err := catalogue.Lookup(g.Device, f.Workload)
	if err != nil {
		p.add(path+".device", "%s", err)
		return
	}
	device, _ := catalogue.Device(g.Device)
	workload, _ := catalogue.Workload(f.Workload)
	memory := int64(g.Memory)
	if memory == 0 {
		memory = device.MemoryBytes
	}
	n := Node{Device: g.Device, Profile: pr, Limit: profile.NoLimit, TFLOPS: device.TFLOPS(workload.DType)}
	if memory > 0 {
		n.Limit = pr.MemoryLimit(memory - stateBytes*workload.Parameters/int64(total))
	}
	n.Hidden.Slowdown = g.Slowdown
	gradient := int64(f.Gradient)
	if gradient == 0 {
		gradient = 4 * workload.Parameters
		if workload.DType == "fp16" {
			gradient = 2 * workload.Parameters
		}
	}
	if g.Link.Bandwidth > 0 && gradient == 0 {
		p.add(path+".link", "the size of a gradient of %s is not known; say it in gradient (for example gradient: 2.6GB)", f.Workload)
	}
	n.Network = g.Link.seconds(gradient)
	if g.Profiled != nil && !*g.Profiled {
		n.Profile, n.Hidden.Profile = nil, pr
	}
	count := 1
	if g.Count != nil {
		count = *g.Count
	}
	base := g.Name
	if base == "" {
		base = g.Device
	}
	for k, serial := 0, 0; k < count; serial++ {
		n.Name = fmt.Sprintf("%s-%d", base, serial)
		if g.Name != "" && count == 1 {
			n.Name = base
			if names[n.Name] {
				p.add(path+".name", "%q is taken by another node", n.Name)
				return
			}
		}
		if names[n.Name] {
			continue
		}
		names[n.Name] = true
		c.Nodes = append(c.Nodes, n)
		k++
	}
}

func (f *FileCollect) build(count int, p *problems) Collect {
	if f.Quorum.Count > count {
		p.add("collect.quorum", "is %d, but there are %d nodes", f.Quorum.Count, count)
	}
	return Collect{
		Quorum: Quorum(f.Quorum), Grace: f.Grace.Duration.std(), GraceShare: f.Grace.Share,
		MaxStaleness: f.MaxStaleness.std(), Timeout: f.Timeout.std(),
	}
}

// Validate says which weight is out of range.
func (o Objectives) Validate() error {
	if o == (Objectives{}) {
		return nil
	}
	for _, w := range []struct {
		name  string
		value float64
	}{{"speed", o.Speed}, {"waiting", o.Waiting}, {"freshness", o.Freshness}} {
		if !(w.value >= 0) || w.value > 1e9 {
			return fmt.Errorf("%s is %v; weights are numbers from 0 to 1e9, only their proportions count", w.name, w.value)
		}
	}
	return nil
}

// Weights are the objectives scaled to sum to 1, in the order speed, waiting, freshness.
func (o Objectives) Weights() [3]float64 {
	sum := o.Speed + o.Waiting + o.Freshness
	if !(sum > 0) {
		return [3]float64{1, 0, 0}
	}
	return [3]float64{o.Speed / sum, o.Waiting / sum, o.Freshness / sum}
}
