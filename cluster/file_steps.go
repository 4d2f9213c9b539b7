package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// maxShapes is the most sizes in a list of micro-batches.
const maxShapes = 64

// FileMicroBatch says which micro-batches a node takes: the largest (8), bounds
// ({least: 2, most: 16}), or a list of all (the shapes that a compiled model accepts).
type FileMicroBatch struct {
	Least, Most int   // bounds; Most 0: what memory holds
	Shapes      []int // rising; nil: the bounds stand
}

func (m *FileMicroBatch) decode(d *decoder, path string, node ast.Node) {
	list, isList := node.(*ast.SequenceNode)
	_, isBounds := entries(node)
	switch {
	case isList:
		d.list(path, node, reflect.ValueOf(&m.Shapes).Elem())
		if n := len(list.Values); n == 0 || n > maxShapes {
			d.fault(path, "lists %d sizes; it must list 1 to %d, or be left out", n, maxShapes)
		}
	case isBounds:
		bounds := struct {
			Least int `yaml:"least"`
			Most  int `yaml:"most"`
		}{Least: 1}
		d.fields(path, node, reflect.ValueOf(&bounds).Elem())
		m.Least, m.Most = bounds.Least, bounds.Most
		if _, ok := d.lines[path+".most"]; ok && bounds.Most < bounds.Least {
			d.fault(path+".most", "is %d, below least, %d", bounds.Most, bounds.Least)
		}
		if bounds.Least < 1 {
			d.fault(path+".least", "is %d; it must be at least 1 sample", bounds.Least)
		}
	default:
		m.Least = 1
		before := len(d.problems)
		if d.basic(path, node, reflect.ValueOf(&m.Most).Elem()); m.Most < 1 && len(d.problems) == before {
			d.fault(path, "is %d; write the largest micro-batch (8), bounds {least: 2, most: 16}, or a list [1, 2, 4, 8]", m.Most)
		}
	}
}

// MarshalYAML writes the list, the bounds, or the largest.
func (m FileMicroBatch) MarshalYAML() (any, error) {
	switch {
	case m.Shapes != nil:
		return m.Shapes, nil
	case m.Least <= 1 && m.Most > 0:
		return m.Most, nil
	}
	return struct {
		Least int `yaml:"least"`
		Most  int `yaml:"most,omitempty"`
	}{m.Least, m.Most}, nil
}

// microBatch sets which micro-batches the node takes, within what its memory holds.
func (b *builder) microBatch(n *Node, g *FileNode, path string) {
	m := g.MicroBatch
	if m == nil {
		return
	}
	if len(m.Shapes) == 0 {
		n.Least = m.Least
		if n.Limit >= 1 && m.Least > n.Limit {
			b.problems.add(path+".least", "is %d, but the memory of %s holds %d; lower it, or give more memory", m.Least, g.Device, n.Limit)
		}
		if m.Most > 0 {
			n.Limit = min(n.Limit, m.Most)
		}
		return
	}
	for i, s := range m.Shapes {
		if s < 1 || i > 0 && s <= m.Shapes[i-1] {
			b.problems.add(fmt.Sprintf("%s[%d]", path, i), "is %d; sizes must be at least 1 and rise", s)
			return
		}
	}
	if n.Limit >= 1 && m.Shapes[0] > n.Limit {
		b.problems.add(path, "begins at %d, but the memory of %s holds %d; list a smaller size, or give more memory", m.Shapes[0], g.Device, n.Limit)
	}
	n.Shapes = slices.Clone(m.Shapes)
	n.Limit = min(n.Limit, m.Shapes[len(m.Shapes)-1])
}

// FileDeadline is the part of the collect section about deadlines.
type FileDeadline struct {
	Deadline *FileDeadlineTime `yaml:"deadline,omitempty"`    // nil: none
	Reserve  *float64          `yaml:"reserve,omitempty"`     // default: DefaultReserve
	Steps    stepCut           `yaml:"micro_steps,omitempty"` // "cut" or "whole"
	Overtime float64           `yaml:"overtime,omitempty"`    // share of the deadline; zero: none
}

// DefaultReserve is the share of the time left that a node keeps free when it cuts its last
// micro-step; best on clusters of the training split (docs/results/tuner.md).
const DefaultReserve = 0.02

func (f *FileDeadline) set(c *Cluster, quorum *FileQuorum, p *problems) {
	if f.Deadline == nil {
		if c.Collect.TimeoutShare > 0 {
			p.add("collect.timeout", "is a share of the deadline, and there is none; add deadline: auto, or write a duration (30s)")
		}
		if f.Reserve != nil || f.Steps != "" || f.Overtime != 0 {
			p.add("collect", "has reserve, micro_steps or overtime, which mean nothing without a deadline; add deadline: auto")
		}
		return
	}
	if quorum.Choices != nil || quorum.Count > 0 || quorum.Share > 0 && quorum.Share < 1 {
		p.add("collect.deadline", "stands beside a quorum below all: by a deadline everybody hands in what is done; leave one of the two out")
	}
	if c.Collect.Grace > 0 || c.Collect.GraceShare > 0 {
		p.add("collect.grace", "means nothing beside a deadline, by which everybody hands in; leave one of the two out")
	}
	c.Collect.Deadline, c.Collect.DeadlineShare, c.Collect.AutoDeadline = f.Deadline.Duration.std(), f.Deadline.Share, f.Deadline.Auto
	c.Collect.Whole, c.Collect.Reserve = f.Steps == wholeSteps, DefaultReserve
	if f.Reserve != nil {
		c.Collect.Reserve = *f.Reserve
		if p.within("collect.reserve", *f.Reserve, 0, 1); *f.Reserve == 1 {
			p.add("collect.reserve", "is 1: nothing would be left for the last micro-step; it must be below 1")
		}
	}
	c.Collect.Overtime = f.Overtime
	p.within("collect.overtime", f.Overtime, 0, 1)
	if t := c.Collect.Timeout; t > 0 && c.Collect.Deadline >= t {
		p.add("collect.deadline", "is %v, not before the timeout, %v", c.Collect.Deadline, t)
	}
	p.tooShort(c)
}

// tooShort names the first node whose smallest micro-step takes longer than the deadline.
func (p *problems) tooShort(c *Cluster) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Profile == nil || c.Collect.Deadline == 0 || n.Full() < 1 {
			continue
		}
		if least := n.Network + n.Profile.Seconds(float64(n.LeastShare())); c.Collect.Deadline.Seconds() < least {
			p.add("collect.deadline", "is %v, but the smallest micro-step of %s, of %s, takes %.3g s with its network; make it longer, or leave the node out",
				c.Collect.Deadline, c.label(i), samples(n.LeastShare()), least)
			return
		}
	}
}

// samples is "1 sample", "2 samples".
func samples(n int) string {
	if n == 1 {
		return "1 sample"
	}
	return fmt.Sprintf("%d samples", n)
}

// FileDeadlineTime is when every node hands in what it has: a duration (2s), a share of the
// predicted finish time (1.1 or 110%), or auto: the mean samples of a round are then the
// global batch.
type FileDeadlineTime struct {
	Duration Duration
	Share    float64
	Auto     bool
}

// ParseDeadline reads a deadline as a cluster file has it.
func ParseDeadline(s string) (*FileDeadlineTime, error) {
	d := new(FileDeadlineTime)
	return d, d.parse(s)
}

func (f *FileDeadlineTime) parse(s string) error {
	*f = FileDeadlineTime{}
	if s == auto {
		f.Auto = true
		return nil
	}
	v, ok := fraction(s)
	d, notTime := time.ParseDuration(s)
	switch {
	case !ok && notTime != nil:
		return fmt.Errorf("is %q; write a duration (2s), a share of the predicted finish time (1.1 or 110%%), or auto", clip(s))
	case ok && v <= 0, !ok && d <= 0:
		return fmt.Errorf("is %q; a deadline must lie above 0, as in 2s or 110%%, or be auto", clip(s))
	case !ok:
		return f.Duration.parse(s)
	case strings.Trim(s, "0123456789") == "":
		percent := v
		if v <= 10 {
			percent *= 100
		}
		return fmt.Errorf("is %q, without a unit; write %ss for seconds, or %v%% of the predicted finish time", clip(s), clip(s), percent)
	case v < 0.1 || v > 10:
		return fmt.Errorf("is %q; a share of the predicted finish time must lie in 0.1..10, a longer deadline is a duration (2s)", clip(s))
	}
	f.Share = v
	return nil
}

// MarshalYAML writes auto, the share or the duration.
func (f FileDeadlineTime) MarshalYAML() (any, error) {
	switch {
	case f.Auto:
		return auto, nil
	case f.Share > 0:
		return f.Share, nil
	}
	return f.Duration.MarshalYAML()
}

// FileTimeout is when a round ends without silent nodes: a duration (30s), or a share of the
// deadline above 1 (3.0 or 300%).
type FileTimeout struct {
	Duration Duration
	Share    float64
}

// mostTimeout is the largest share.
const mostTimeout = 1000

func (f *FileTimeout) parse(s string) error {
	*f = FileTimeout{}
	v, ok := fraction(s)
	_, notTime := time.ParseDuration(s)
	switch {
	case notTime == nil:
		return f.Duration.parse(s)
	case !ok || strings.Trim(s, "0123456789") == "":
		return fmt.Errorf("is %q; write a duration with its unit (30s), or a share of the deadline (300%%)", clip(s))
	case v <= 1 || v > mostTimeout:
		return fmt.Errorf("is %q; a share of the deadline must lie above 100%% and be at most %d%%", clip(s), 100*mostTimeout)
	}
	f.Share = v
	return nil
}

// MarshalYAML writes the share or the duration.
func (f FileTimeout) MarshalYAML() (any, error) {
	if f.Share > 0 {
		return f.Share, nil
	}
	return f.Duration.MarshalYAML()
}

// stepCut says how the last micro-step before a deadline is made.
type stepCut string

const wholeSteps stepCut = "whole"

func (s *stepCut) parse(text string) error {
	if *s = stepCut(strings.TrimSpace(text)); *s != wholeSteps && *s != "cut" {
		return fmt.Errorf("is %q; write cut (the last micro-step is made to end at the deadline) or whole", clip(text))
	}
	return nil
}
