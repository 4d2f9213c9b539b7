// Package clusterfile reads cluster files: YAML that describes nodes, the round rule, and what a
// simulated cluster goes through. docs/reference/formats/cluster.md is the format.
//
//	file, c, err := clusterfile.Load("cluster.yaml", profile.Embedded())
//
// An error lists every fault with the line that it quotes. See the Examples.
package clusterfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/trace"
	"evenkeel/internal/badinput"
)

// MaxBytes is the largest cluster file.
const MaxBytes = 512 << 10

// ErrFile marks every error about the content of a cluster file: bad input, not a
// failure of the machine.
var ErrFile = badinput.New("cluster: invalid file")

// File is a cluster file as written: see docs/reference/formats/cluster.md.
type File struct {
	Workload    string             `yaml:"workload"`
	GlobalBatch *Batch             `yaml:"global_batch"`
	Gradient    Bytes              `yaml:"gradient,omitempty"` // size of one gradient; default: 4 or 2 bytes per parameter
	Nodes       []Group            `yaml:"nodes"`
	EqualSteps  *EqualSteps        `yaml:"equal_steps,omitempty"` // nil: each node makes as few micro-steps as its memory allows
	Collect     Collect            `yaml:"collect,omitempty"`
	Conditions  Conditions         `yaml:"conditions,omitempty"`
	Objectives  cluster.Objectives `yaml:"objectives,omitempty"`
	Switches    []Switch           `yaml:"switches,omitempty"` // only a Topology reads them
}

// Group is a group of equal nodes.
type Group struct {
	Name   string `yaml:"name,omitempty"`   // default: the device's name; "-0", "-1", ... are added where there are several
	Device string `yaml:"device"`           // of the catalogue or a --profiles file
	Count  *int   `yaml:"count,omitempty"`  // default 1
	Memory Bytes  `yaml:"memory,omitempty"` // default: the device's
	// MicroBatch bounds the micro-batch; nil: memory alone does.
	MicroBatch *MicroBatch    `yaml:"micro_batch,omitempty"`
	Slowdown   float64        `yaml:"slowdown,omitempty"` // true over profile seconds, 0.01..100; default 1; only simulations know it
	Fits       *int           `yaml:"fits,omitempty"`     // largest micro-batch that memory really holds; default: as many as the controller believes; only simulations know it
	Link       Link           `yaml:"link,omitempty"`
	Power      *cluster.Power `yaml:"power,omitempty"`    // default: the device's; zeros: unknown
	Profiled   *bool          `yaml:"profiled,omitempty"` // false: the controller is not shown the profile
	Host       string         `yaml:"host,omitempty"`     // that the nodes share with other groups of this host; default: not known
	Rack       string         `yaml:"rack,omitempty"`     // likewise; a host is in one rack

	// Only a Topology reads these: a count of devices is that many divided by PerMachine machines.
	PerMachine *int   `yaml:"per_machine,omitempty"` // devices of a machine, default 1
	Inside     *Level `yaml:"inside,omitempty"`      // link between devices of a machine
	Switch     string `yaml:"switch,omitempty"`      // what the machines' links lead to; default: a core that costs nothing
}

// Read parses a cluster file and checks it against the catalogue. name appears in
// errors, which wrap ErrFile and quote the faulty line.
//
// A trace that the conditions replay is not read; see ReadIn.
func Read(r io.Reader, name string, catalogue *profile.Catalogue) (*File, *cluster.Cluster, error) {
	return read(r, name, catalogue, func(*trace.Replay) error { return nil })
}

// ReadIn is Read, and reads a trace that the conditions replay, whose path is relative to
// the folder.
func ReadIn(r io.Reader, name, folder string, catalogue *profile.Catalogue) (*File, *cluster.Cluster, error) {
	return read(r, name, catalogue, func(c *trace.Replay) error {
		if c.File == "" {
			return nil
		}
		return c.Open(folder)
	})
}

func read(r io.Reader, name string, catalogue *profile.Catalogue, openTrace func(*trace.Replay) error) (*File, *cluster.Cluster, error) {
	var f File
	d, source, err := decode(r, name, &f)
	if err != nil {
		return nil, nil, err
	}
	var c *cluster.Cluster
	if len(d.faults) == 0 {
		c = f.build(catalogue, &d.faults, d.lines)
	}
	if len(d.faults) == 0 {
		if err := openTrace(&f.Conditions.Conditions.Replay); err != nil {
			d.fault("conditions.replay.file", "%s", err)
		}
	}
	if len(d.faults) > 0 {
		return nil, nil, fileError(d.faults, name, source, d.lines)
	}
	return &f, c, nil
}

// decode fills f from r, and returns what it noted on the way and the text.
func decode(r io.Reader, name string, f *File) (*decoder, []byte, error) {
	source, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("cluster: %s: %w", name, err)
	}
	if len(source) > MaxBytes {
		return nil, nil, fmt.Errorf("%s: %w: larger than %d bytes", name, ErrFile, MaxBytes)
	}
	source = bytes.TrimPrefix(source, []byte("\ufeff")) // some editors write a byte order mark
	var d decoder
	d.read(source, f)
	return &d, source, nil
}

// Load reads the cluster file at path; see Read.
func Load(path string, catalogue *profile.Catalogue) (*File, *cluster.Cluster, error) {
	f, err := open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return ReadIn(f, path, filepath.Dir(path), catalogue)
}

// open opens a file; a folder is bad input.
func open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s: %w: it is a folder; name a file in it", path, ErrFile)
	}
	return f, nil
}

// build turns the file into a cluster and records every problem.
// written holds the paths of the fields that the file sets, so that an explicit zero is
// not taken for a default.
func (f *File) build(catalogue *profile.Catalogue, p *badinput.Faults, written map[string]int) *cluster.Cluster {
	b := builder{file: f, catalogue: catalogue, faults: p, written: written, names: map[string]bool{}, serial: map[string]int{}, hosts: map[string]int{}}
	b.workload()
	batch := Batch{}
	if f.GlobalBatch != nil {
		batch = *f.GlobalBatch
	}
	if batch.Start < 1 || batch.Start > cluster.MaxGlobalBatch {
		p.Add("global_batch", "is %d; it must lie in 1..%d samples", batch.Start, cluster.MaxGlobalBatch)
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
	if f.EqualSteps != nil && len(*p) == 0 {
		f.EqualSteps.set(c, p)
	}
	f.Collect.set(c, b.total, p)
	p.Under("conditions.", f.Conditions.Conditions.Validate())
	p.Under("objectives.", f.Objectives.Validate())
	if _, ok := written["objectives"]; ok && f.Objectives == (cluster.Objectives{}) {
		p.Add("objectives", "are all zero; give at least one weight above 0")
	}
	if len(*p) == 0 {
		if err := c.MakesUp(); err != nil {
			p.Add("global_batch", "%s", reason(err))
		}
		p.Under("objectives.", f.Objectives.Check(c))
	}
	return c
}

// EqualSteps is a number of micro-steps that every node makes in a round, or auto: 0, the number with which the first round
// finishes soonest by the profiles.
type EqualSteps int

func (e *EqualSteps) parse(s string) error {
	n, err := strconv.Atoi(s)
	if *e = EqualSteps(n); s != auto && (err != nil || n < 1 || n > cluster.MaxMicroSteps) {
		return fmt.Errorf("is %q; write a number of micro-steps, 1..%d, or auto", clip(s), cluster.MaxMicroSteps)
	}
	return nil
}

func (e *EqualSteps) set(c *cluster.Cluster, p *badinput.Faults) {
	if *e > 0 {
		c.SetEqualSteps(int(*e))
		return
	}
	steps, err := cluster.BestEqualSteps(c, c.Nominal())
	if err != nil {
		p.Add("global_batch", "%s", reason(err))
	}
	c.SetEqualSteps(steps)
}

// reason is what an error of an allocation says beside that it is one.
func reason(err error) string {
	return strings.TrimPrefix(err.Error(), cluster.ErrCapacity.Error()+": ")
}
