package clusterfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// Collect is the collect section. If the policy chooses one of quorum and grace, the other
// is its choice too, or one of the values that it may choose.
type Collect struct {
	Quorum       *Quorum  `yaml:"quorum,omitempty"` // nil: all
	Grace        *Grace   `yaml:"grace,omitempty"`  // nil: 0; beside a quorum that the policy chooses: any of Graces
	MaxStaleness Duration `yaml:"max_staleness,omitempty"`
	Timeout      Timeout  `yaml:"timeout,omitempty"`

	Deadline *Deadline `yaml:"deadline,omitempty"`    // nil: none
	Reserve  *Share    `yaml:"reserve,omitempty"`     // default: cluster.DefaultReserve
	Steps    stepCut   `yaml:"micro_steps,omitempty"` // "cut" or "whole"
	Overtime Share     `yaml:"overtime,omitempty"`    // share of the deadline; zero: none
}

// Apply sets how c collects and what the policy may choose. The error lists every
// problem, by field; c is then unchanged.
func (f *Collect) Apply(c *cluster.Cluster) error {
	var p badinput.Faults
	changed := *c
	if f.set(&changed, len(c.Nodes), &p); len(p) == 0 {
		*c = changed
	}
	return p.Err()
}

// set is Apply for a number of nodes, 0 if unknown.
func (f *Collect) set(c *cluster.Cluster, nodes int, p *badinput.Faults) {
	var quorum Quorum
	var grace Grace
	if f.Quorum != nil {
		quorum = *f.Quorum
	}
	if f.Grace != nil {
		grace = *f.Grace
	}
	if n := quorum.Count; nodes > 0 && n > nodes {
		p.Add("collect.quorum", "is %d, but there are %d nodes", n, nodes)
	}
	c.Collect = cluster.Collect{Quorum: quorum.Quorum, Grace: grace.Duration.std(), GraceShare: grace.Share, MaxStaleness: f.MaxStaleness.std(), Timeout: f.Timeout.Duration.std(), TimeoutShare: f.Timeout.Share}
	f.setDeadline(c, &quorum, p)
	c.Choices.Quorum, c.Choices.Grace = quorum.Choices, grace.Choices
	if quorum.Choices == nil && grace.Choices == nil {
		return
	}
	// A policy that does not choose waits for all.
	c.Collect.Quorum, c.Collect.Grace, c.Collect.GraceShare = cluster.Quorum{}, 0, 0
	switch {
	case f.Quorum == nil:
		p.Add("collect.grace", "is left to the policy, but the round waits for all; give collect.quorum too: auto, a list, or one of %s", shares(cluster.Quorums))
	case quorum.Choices == nil:
		if quorum.Count > 0 || !slices.Contains(cluster.Quorums, quorum.Share) {
			p.Add("collect.quorum", "must be auto, a list, or one of %s where the policy chooses the grace", shares(cluster.Quorums))
		}
		c.Choices.Quorum = []float64{quorum.Share}
	}
	switch {
	case f.Grace == nil:
		c.Choices.Grace = slices.Clone(cluster.Graces)
	case grace.Choices == nil:
		if grace.Duration != 0 || !slices.Contains(cluster.Graces, grace.Share) {
			p.Add("collect.grace", "must be auto, a list, or one of %s where the policy chooses the quorum", shares(cluster.Graces))
		}
		c.Choices.Grace = []float64{grace.Share}
	}
}

// Quorum is a Quorum in a file: a count (12), a share (0.75 or 75%), or all. Left to the
// policy it is a list of shares, or auto.
type Quorum struct {
	cluster.Quorum
	Choices []float64 // of Quorums; nil: Quorum stands
}

// ParseQuorum reads a quorum as a cluster file has it, a list as "70%,90%,all".
func ParseQuorum(s string) (*Quorum, error) {
	q := new(Quorum)
	return q, q.parse(s)
}

func (q *Quorum) parse(s string) (err error) {
	*q = Quorum{}
	if s == auto || strings.Contains(s, ",") {
		q.Choices, err = choices(s, cluster.Quorums)
		return err
	}
	if s == "all" {
		q.Share = 1
		return nil
	}
	if n, err := strconv.Atoi(s); err == nil && n >= 1 {
		q.Count = n
		return nil
	}
	v, ok := fraction(s)
	if !ok || v <= 0 || v > 1 {
		return fmt.Errorf("is %q; write a number of nodes (12), a share above 0 and up to 1 (0.75 or 75%%), all, auto, or a list", clip(s))
	}
	q.Share = v
	return nil
}

func (q *Quorum) decode(d *decoder, path string, node ast.Node) {
	if !d.choices(path, node, cluster.Quorums, &q.Choices) {
		d.scalar(path, node, q)
	}
}

// Grace is how long to wait for target nodes: a duration (500ms), or a share of the
// time the quorum took (0.1 or 10%), 0 to 1. If the policy chooses it, it is a list of
// shares, or auto.
type Grace struct {
	Duration Duration
	Share    float64
	Choices  []float64 // of Graces; nil: the others stand
}

// ParseGrace reads a grace as a cluster file has it, a list as "0%,10%".
func ParseGrace(s string) (*Grace, error) {
	g := new(Grace)
	return g, g.parse(s)
}

func (g *Grace) parse(s string) (err error) {
	*g = Grace{}
	if s == auto || strings.Contains(s, ",") {
		g.Choices, err = choices(s, cluster.Graces)
		return err
	}
	v, ok := fraction(s)
	_, notTime := time.ParseDuration(s)
	switch {
	case !ok && notTime != nil:
		return fmt.Errorf("is %q; write a duration (500ms), a share of the quorum time (0.1 or 10%%), auto, or a list", clip(s))
	case !ok:
		return g.Duration.parse(s)
	case v < 0 || v > 1:
		return fmt.Errorf("is %q; a share of the quorum time must lie in 0..1, a longer grace is a duration (2s)", clip(s))
	}
	g.Share = v
	return nil
}

func (g *Grace) decode(d *decoder, path string, node ast.Node) {
	if !d.choices(path, node, cluster.Graces, &g.Choices) {
		d.scalar(path, node, g)
	}
}

// auto lets the policy choose from the whole set.
const auto = "auto"

// choices reads auto, or a list with commas, of values of a set.
func choices(s string, set []float64) ([]float64, error) {
	if s == auto {
		return slices.Clone(set), nil
	}
	var out []float64
	for part := range strings.SplitSeq(s, ",") {
		v, err := member(strings.TrimSpace(part), set, out)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// choices decodes a sequence of values of a set; false if node is not a sequence.
func (d *decoder) choices(path string, node ast.Node, set []float64, into *[]float64) bool {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return false
	}
	if len(list.Values) == 0 {
		d.fault(path, "is empty; list some of %s, or write auto", shares(set))
	}
	for i, entry := range list.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = entry.GetToken().Position.Line
		d.value(at, entry, reflect.ValueOf(&choice{set: set, into: into}).Elem())
	}
	return true
}

// choice is an entry of a list of values of a set.
type choice struct {
	set  []float64
	into *[]float64
}

func (c *choice) parse(s string) error {
	v, err := member(s, c.set, *c.into)
	if err == nil {
		*c.into = append(*c.into, v)
	}
	return err
}

// member reads one value of a set that is not among the others. A whole number is not a
// value: outside a list it is a number of nodes.
func member(s string, set, others []float64) (float64, error) {
	v, ok := fraction(s)
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		ok = false
	}
	if s == "all" {
		v, ok = 1, true
	}
	switch {
	case !ok || !slices.Contains(set, v):
		return 0, fmt.Errorf("is %q; the policy can choose among %s", clip(s), shares(set))
	case slices.Contains(others, v):
		return 0, errors.New("is there twice: " + shares([]float64{v}))
	}
	return v, nil
}

// shares writes values of a set: "70%, 90%, all".
func shares(values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatFloat(100*v, 'g', 6, 64) + "%"
		if v == 1 {
			texts[i] = "all"
		}
	}
	return strings.Join(texts, ", ")
}

// setDeadline is the part of set about deadlines.
func (f *Collect) setDeadline(c *cluster.Cluster, quorum *Quorum, p *badinput.Faults) {
	if f.Deadline == nil {
		if c.Collect.TimeoutShare > 0 {
			p.Add("collect.timeout", "is a share of the deadline, and there is none; add deadline: auto, or write a duration (30s)")
		}
		if f.Reserve != nil || f.Steps != "" || f.Overtime != 0 {
			p.Add("collect", "has reserve, micro_steps or overtime, which mean nothing without a deadline; add deadline: auto")
		}
		return
	}
	if c.EqualSteps() > 0 {
		p.Add("collect.deadline", "excludes equal_steps, because nodes that end at a deadline make different numbers of micro-steps; leave one of the two out")
	}
	if quorum.Choices != nil || quorum.Count > 0 || quorum.Share > 0 && quorum.Share < 1 {
		p.Add("collect.deadline", "excludes a quorum below all, because with a deadline every node hands in; leave one of the two out")
	}
	if c.Collect.Grace > 0 || c.Collect.GraceShare > 0 {
		p.Add("collect.grace", "means nothing with a deadline, at which every node hands in; leave one of the two out")
	}
	c.Collect.Deadline, c.Collect.DeadlineShare, c.Collect.AutoDeadline = f.Deadline.Duration.std(), f.Deadline.Share, f.Deadline.Auto
	c.Collect.Whole, c.Collect.Reserve = f.Steps == wholeSteps, cluster.DefaultReserve
	if f.Reserve != nil {
		c.Collect.Reserve = float64(*f.Reserve)
		if p.Within("collect.reserve", c.Collect.Reserve, 0, 1); *f.Reserve == 1 {
			p.Add("collect.reserve", "is 1: nothing would be left for the last micro-step; it must be below 1")
		}
	}
	c.Collect.Overtime = float64(f.Overtime)
	p.Within("collect.overtime", c.Collect.Overtime, 0, 1)
	if t := c.Collect.Timeout; t > 0 && c.Collect.Deadline >= t {
		p.Add("collect.deadline", "is %v, not before the timeout, %v", c.Collect.Deadline, t)
	}
	tooShort(c, p)
}

// tooShort names the first node whose smallest micro-step takes longer than the deadline.
func tooShort(c *cluster.Cluster, p *badinput.Faults) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Profile == nil || c.Collect.Deadline == 0 || n.Full() < 1 {
			continue
		}
		if least := n.Network + n.Profile.Seconds(float64(n.LeastStep())); c.Collect.Deadline.Seconds() < least {
			p.Add("collect.deadline", "is %v, but the smallest micro-step of %s, of %s, takes %.3g s with its network; make it longer, or leave the node out",
				c.Collect.Deadline, c.Label(i), samples(n.LeastStep()), least)
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

// Deadline is when every node hands in what it has: a duration (2s), a share of the
// predicted finish time (1.1 or 110%), or auto: the mean samples of a round are then the
// global batch.
type Deadline struct {
	Duration Duration
	Share    float64
	Auto     bool
}

// ParseDeadline reads a deadline as a cluster file has it.
func ParseDeadline(s string) (*Deadline, error) {
	d := new(Deadline)
	return d, d.parse(s)
}

func (f *Deadline) parse(s string) error {
	*f = Deadline{}
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

// Timeout is when a round ends without silent nodes: a duration (30s), or a share of the
// deadline above 1 (3.0 or 300%).
type Timeout struct {
	Duration Duration
	Share    float64
}

// mostTimeout is the largest share.
const mostTimeout = 1000

func (f *Timeout) parse(s string) error {
	*f = Timeout{}
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

// stepCut says how the last micro-step before a deadline is made.
type stepCut string

const wholeSteps stepCut = "whole"

func (s *stepCut) parse(text string) error {
	if *s = stepCut(strings.TrimSpace(text)); *s != wholeSteps && *s != "cut" {
		return fmt.Errorf("is %q; write cut (the last micro-step is made to end at the deadline) or whole", clip(text))
	}
	return nil
}
