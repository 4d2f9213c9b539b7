package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// FileCollect is the collect section. If the policy chooses quorum or grace, it chooses the
// other too, or the other is one of the values that it may choose.
type FileCollect struct {
	Quorum       *FileQuorum `yaml:"quorum,omitempty"` // nil: all
	Grace        *FileGrace  `yaml:"grace,omitempty"`  // nil: 0; beside a quorum that the policy chooses: any of Graces
	MaxStaleness Duration    `yaml:"max_staleness,omitempty"`
	Timeout      FileTimeout `yaml:"timeout,omitempty"`
	FileDeadline `yaml:",inline"`
}

// Apply sets how c collects and what the policy may choose. The error lists every
// problem, by field; c is then unchanged.
func (f *FileCollect) Apply(c *Cluster) error {
	var p problems
	changed := *c
	if f.set(&changed, len(c.Nodes), &p); len(p) == 0 {
		*c = changed
	}
	return p.join()
}

// set is Apply for a number of nodes, 0 if unknown.
func (f *FileCollect) set(c *Cluster, nodes int, p *problems) {
	var quorum FileQuorum
	var grace FileGrace
	if f.Quorum != nil {
		quorum = *f.Quorum
	}
	if f.Grace != nil {
		grace = *f.Grace
	}
	if n := quorum.Count; nodes > 0 && n > nodes {
		p.add("collect.quorum", "is %d, but there are %d nodes", n, nodes)
	}
	c.Collect = Collect{Quorum: quorum.Quorum, Grace: grace.Duration.std(), GraceShare: grace.Share, MaxStaleness: f.MaxStaleness.std(), Timeout: f.Timeout.Duration.std(), TimeoutShare: f.Timeout.Share}
	f.FileDeadline.set(c, &quorum, p)
	c.Choices.Quorum, c.Choices.Grace = quorum.Choices, grace.Choices
	if quorum.Choices == nil && grace.Choices == nil {
		return
	}
	// The first round waits for all: nothing is known yet on which to base a choice.
	c.Collect.Quorum, c.Collect.Grace, c.Collect.GraceShare = Quorum{}, 0, 0
	switch {
	case f.Quorum == nil:
		p.add("collect.grace", "is left to the policy, but the round waits for all; give collect.quorum too: auto, a list, or one of %s", shares(Quorums))
	case quorum.Choices == nil:
		if quorum.Count > 0 || !slices.Contains(Quorums, quorum.Share) {
			p.add("collect.quorum", "must be auto, a list, or one of %s where the policy chooses the grace", shares(Quorums))
		}
		c.Choices.Quorum = []float64{quorum.Share}
	}
	switch {
	case f.Grace == nil:
		c.Choices.Grace = slices.Clone(Graces)
	case grace.Choices == nil:
		if grace.Duration != 0 || !slices.Contains(Graces, grace.Share) {
			p.add("collect.grace", "must be auto, a list, or one of %s where the policy chooses the quorum", shares(Graces))
		}
		c.Choices.Grace = []float64{grace.Share}
	}
}

// FileQuorum is a Quorum in a file: a count (12), a share (0.75 or 75%), or all. Left to the
// policy it is a list of shares, or auto.
type FileQuorum struct {
	Quorum
	Choices []float64 // of Quorums; nil: Quorum stands
}

// ParseQuorum reads a quorum as a cluster file has it, a list as "70%,90%,all".
func ParseQuorum(s string) (*FileQuorum, error) {
	q := new(FileQuorum)
	return q, q.parse(s)
}

func (q *FileQuorum) parse(s string) (err error) {
	*q = FileQuorum{}
	if s == auto || strings.Contains(s, ",") {
		q.Choices, err = choices(s, Quorums)
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

func (q *FileQuorum) decode(d *decoder, path string, node ast.Node) {
	if !d.choices(path, node, Quorums, &q.Choices) {
		d.scalar(path, node, q)
	}
}

// MarshalYAML writes the count, the share, or all; auto, or the list.
func (q FileQuorum) MarshalYAML() (any, error) {
	switch {
	case q.Choices != nil:
		return writtenChoices(q.Choices, Quorums), nil
	case q.Count > 0:
		return q.Count, nil
	case q.Share > 0 && q.Share < 1:
		return q.Share, nil
	}
	return "all", nil // a share of 1 would read as one node
}

// FileGrace is how long to wait for target nodes: a duration (500ms), or a share of the
// time the quorum took (0.1 or 10%), 0 to 1. If the policy chooses it, it is a list of
// shares, or auto.
type FileGrace struct {
	Duration Duration
	Share    float64
	Choices  []float64 // of Graces; nil: the others stand
}

// ParseGrace reads a grace as a cluster file has it, a list as "0%,10%".
func ParseGrace(s string) (*FileGrace, error) {
	g := new(FileGrace)
	return g, g.parse(s)
}

func (g *FileGrace) parse(s string) (err error) {
	*g = FileGrace{}
	if s == auto || strings.Contains(s, ",") {
		g.Choices, err = choices(s, Graces)
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

func (g *FileGrace) decode(d *decoder, path string, node ast.Node) {
	if !d.choices(path, node, Graces, &g.Choices) {
		d.scalar(path, node, g)
	}
}

// MarshalYAML writes the share or the duration; auto, or the list.
func (g FileGrace) MarshalYAML() (any, error) {
	switch {
	case g.Choices != nil:
		return writtenChoices(g.Choices, Graces), nil
	case g.Share > 0:
		return g.Share, nil
	}
	return g.Duration.MarshalYAML()
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

// choices decodes a sequence of values of a set; false where node is none.
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

// member reads one value of a set that is not among the others. A whole number is none:
// alone it would be a number of nodes.
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

func writtenChoices(values, set []float64) any {
	if slices.Equal(values, set) {
		return auto
	}
	return strings.Split(shares(values), ", ")
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

// FileBatch is the global batch in a file: a number of samples or, if the policy chooses
// it, its first value and its bounds.
type FileBatch struct {
	Start int `yaml:"start"`
	Least int `yaml:"least"` // 1..Start; both 0: Start stands
	Most  int `yaml:"most"`  // Start..MaxGlobalBatch
}

func (b *FileBatch) decode(d *decoder, path string, node ast.Node) {
	if _, ok := entries(node); !ok {
		d.basic(path, node, reflect.ValueOf(&b.Start).Elem())
		return
	}
	before := len(d.problems)
	d.fields(path, node, reflect.ValueOf(b).Elem())
	for _, key := range []string{"start", "least", "most"} {
		if _, ok := d.lines[path+"."+key]; !ok {
			d.fault(path, "%s is missing; write {start: 384, least: 192, most: 768}, or a number of samples", key)
		}
	}
	if len(d.problems) > before {
		return
	}
	within := func(key string, v, least, most int) {
		if v < least || v > most {
			d.fault(path+"."+key, "is %d; 1 <= least <= start <= most <= %d must hold", v, MaxGlobalBatch)
		}
	}
	within("start", b.Start, 1, MaxGlobalBatch)
	within("least", b.Least, 1, b.Start)
	within("most", b.Most, b.Start, MaxGlobalBatch)
}

// MarshalYAML writes the number, or the mapping.
func (b FileBatch) MarshalYAML() (any, error) {
	if b.Least == 0 && b.Most == 0 {
		return b.Start, nil
	}
	type mapping FileBatch
	return mapping(b), nil
}
