package cluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cluster/trace"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Limits on what a cluster file may hold.
const (
	MaxFileBytes   = 512 << 10
	MaxNodes       = 100_000
	MaxGlobalBatch = 1 << 30
)

// stateBytes is what parameters, gradients and Adam's moments take per parameter. The
// catalogue's peak memory leaves this state out, as its source shards it evenly over
// the nodes; so it is taken off every node's memory.
const stateBytes = 16

// ErrFile marks every error about the content of a cluster file: bad input, not a
// failure of the machine.
var ErrFile = badinput.New("cluster: invalid file")

// File is a cluster file as written: see docs/reference/formats/cluster.md.
type File struct {
	Workload    string         `yaml:"workload"`
	GlobalBatch *FileBatch     `yaml:"global_batch"`
	Gradient    Bytes          `yaml:"gradient,omitempty"` // size of one gradient; default: 4 or 2 bytes per parameter
	Nodes       []FileNode     `yaml:"nodes"`
	Collect     FileCollect    `yaml:"collect,omitempty"`
	Conditions  FileConditions `yaml:"conditions,omitempty"`
	Objectives  Objectives     `yaml:"objectives,omitempty"`
	Switches    []FileSwitch   `yaml:"switches,omitempty"` // only a Topology reads them
}

// FileNode is a group of equal nodes.
type FileNode struct {
	Name   string `yaml:"name,omitempty"`   // default: the device's name; "-0", "-1", ... are added where there are several
	Device string `yaml:"device"`           // of the catalogue or a --profiles file
	Count  *int   `yaml:"count,omitempty"`  // default 1
	Memory Bytes  `yaml:"memory,omitempty"` // default: the device's
	// MicroBatch bounds the micro-batch; nil: memory alone does.
	MicroBatch *FileMicroBatch `yaml:"micro_batch,omitempty"`
	Slowdown   float64         `yaml:"slowdown,omitempty"` // true over profile seconds, 0.01..100; default 1; only simulations know it
	Fits       *int            `yaml:"fits,omitempty"`     // largest micro-batch that memory really holds; default: as many as the controller believes; only simulations know it
	Link       Link            `yaml:"link,omitempty"`
	Power      *Power          `yaml:"power,omitempty"`    // default: the device's; zeros: unknown
	Profiled   *bool           `yaml:"profiled,omitempty"` // false: the controller is not shown the profile

	// Only a Topology reads these: a count of devices is that many divided by PerMachine machines.
	PerMachine *int   `yaml:"per_machine,omitempty"` // devices of a machine, default 1
	Inside     *Level `yaml:"inside,omitempty"`      // link between devices of a machine
	Switch     string `yaml:"switch,omitempty"`      // what the machines' links lead to; default: a core that costs nothing
}

// Objectives are the weights of what is wanted. They must be finite, none negative,
// not all zero; only their proportions count. The zero value means speed alone.
type Objectives struct {
	Speed     float64 `yaml:"speed,omitempty" json:"speed"`
	Waiting   float64 `yaml:"waiting,omitempty" json:"waiting"`
	Freshness float64 `yaml:"freshness,omitempty" json:"freshness"`
	Energy    float64 `yaml:"energy,omitempty" json:"energy"`
}

// Read parses a cluster file and checks it against the catalogue. name appears in
// errors, which wrap ErrFile and quote the faulty line.
//
// A trace that the conditions replay is not read; see ReadIn.
func Read(r io.Reader, name string, catalogue *profile.Catalogue) (*File, *Cluster, error) {
	return read(r, name, catalogue, func(*trace.Replay) error { return nil })
}

// ReadIn is Read, and reads a trace that the conditions replay, whose path is relative to
// the folder.
func ReadIn(r io.Reader, name, folder string, catalogue *profile.Catalogue) (*File, *Cluster, error) {
	return read(r, name, catalogue, func(c *trace.Replay) error {
		if c.File == "" {
			return nil
		}
		return c.Open(folder)
	})
}

func read(r io.Reader, name string, catalogue *profile.Catalogue, open func(*trace.Replay) error) (*File, *Cluster, error) {
	source, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: %s: %w", name, err)
	}
	if len(source) > MaxFileBytes {
		return nil, nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrFile, MaxFileBytes)
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // some editors write a byte order mark
	var f File
	var c *Cluster
	var d decoder
	d.read(source, &f)
	if len(d.problems) == 0 {
		c = f.build(catalogue, &d.problems, d.lines)
	}
	if len(d.problems) == 0 {
		if err := open(&f.Conditions.Conditions.Replay); err != nil {
			d.fault("conditions.replay.file", "%s", err)
		}
	}
	if len(d.problems) > 0 {
		return nil, nil, d.problems.error(name, source, d.lines)
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
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrFile)
	}
	return ReadIn(f, path, filepath.Dir(path), catalogue)
}

// build turns the file into a cluster and records every problem.
// written holds the paths of the fields that the file sets, so that an explicit zero is
// not taken for a default.
func (f *File) build(catalogue *profile.Catalogue, p *problems, written map[string]int) *Cluster {
	b := builder{file: f, catalogue: catalogue, problems: p, written: written, names: map[string]bool{}, serial: map[string]int{}}
	b.workload()
	batch := FileBatch{}
	if f.GlobalBatch != nil {
		batch = *f.GlobalBatch
	}
	if batch.Start < 1 || batch.Start > MaxGlobalBatch {
		p.add("global_batch", "is %d; it must lie in 1..%d samples", batch.Start, MaxGlobalBatch)
	}
	b.count()
	if b.total > 0 { // the part of the model state per node depends on it
		for i := range f.Nodes {
			b.group(i)
		}
	}
	c := &b.cluster
	c.Workload, c.GlobalBatch = f.Workload, batch.Start
	c.Choices.LeastBatch, c.Choices.MostBatch = batch.Least, batch.Most
	f.Collect.set(c, b.total, p)
	f.Conditions.Conditions.check("conditions.", p)
	if i := slices.IndexFunc(f.Nodes, func(n FileNode) bool { return n.MicroBatch != nil && len(n.MicroBatch.Shapes) > 0 }); i >= 0 && f.Conditions.Conditions.Lengths.Set() {
		p.add("conditions.lengths", "stand beside a list of micro-batches, nodes[%d].micro_batch: what is padded to such shapes costs the same; leave one of the two out", i)
	}
	f.Objectives.check("objectives.", p)
	if _, ok := written["objectives"]; ok && f.Objectives == (Objectives{}) {
		p.add("objectives", "are all zero; give at least one weight above 0")
	}
	if len(*p) == 0 {
		if err := c.makesUp(); err != nil {
			p.add("global_batch", "%s", strings.TrimPrefix(err.Error(), ErrCapacity.Error()+": "))
		}
		f.Objectives.checkPower("objectives.", c, p)
	}
	return c
}

// makesUp returns an error unless there are shares that make up the global batch.
func (c *Cluster) makesUp() error {
	if err := c.CheckCapacity(nil); err != nil {
		return err
	}
	if !slices.ContainsFunc(c.Nodes, func(n Node) bool { return n.LeastShare() > 1 }) {
		return nil // single samples make up any
	}
	_, err := Allocate(c, nil, c.Nominal(), make([]int, len(c.Nodes)))
	return err
}

// Validate reports every weight out of range, with its name.
func (o Objectives) Validate() error {
	var p problems
	o.check("", &p)
	return p.join()
}

// Check reports a weight that the cluster has no data for: energy needs a node whose
// power is known.
func (o Objectives) Check(c *Cluster) error {
	var p problems
	o.checkPower("", c, &p)
	return p.join()
}

func (o Objectives) checkPower(prefix string, c *Cluster, p *problems) {
	known := func(n Node) bool { return n.Power != (Power{}) }
	if o.Energy > 0 && !slices.ContainsFunc(c.Nodes, known) {
		p.add(prefix+"energy", "is %s, but no node has a known power; give nodes a power: {idle, busy}", number(o.Energy))
	}
}

func (o Objectives) check(prefix string, p *problems) {
	p.within(prefix+"speed", o.Speed, 0, 1e9)
	p.within(prefix+"waiting", o.Waiting, 0, 1e9)
	p.within(prefix+"freshness", o.Freshness, 0, 1e9)
	p.within(prefix+"energy", o.Energy, 0, 1e9)
}

// Weights are the objectives scaled to sum to 1, in the order speed, waiting, freshness,
// energy.
func (o Objectives) Weights() [4]float64 {
	sum := o.Speed + o.Waiting + o.Freshness + o.Energy
	if !(sum > 0) {
		return [4]float64{1}
	}
	return [4]float64{o.Speed / sum, o.Waiting / sum, o.Freshness / sum, o.Energy / sum}
}
