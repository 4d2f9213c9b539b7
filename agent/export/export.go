// Package export writes the nodes' shares of a round, and the micro-steps that they are
// made of, in the formats that trainers read.
//
//	s := export.New(c, shares)                 // as cluster.Allocate wrote them
//	err := s.ScaleLearningRate("sqrt", 256, 0) // if the batch differs from the user's
//	err = export.Save("sizes.json", "json", s) // or Write, to any writer
//	s, err = export.Read(file)                 // reads and checks the json format
//
// See the Example. [Formats] lists the formats: json, csv, torchrun, deepspeed and
// kubernetes.
//
// The nodes that take part are the ranks of the training job, in their order in the
// cluster: [Sizes.Ranks] is indexed by rank. Each comes with its gradient weight, because
// trainers average gradients equally over ranks whatever their batch.
//
// docs/reference/formats/sizes.md describes every format, docs/guides/trainers.md their use.
package export

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/renameio/v2"

	"evenkeel/cluster"
	"evenkeel/internal/badinput"
)

// version is that of the sizes format.
const version = 3

// Limits of what Read and Validate accept.
const (
	maxFileBytes = 64 << 20
	maxName      = 253 // bytes of a node's, device's or workload's name
	maxProblems  = 20  // listed at once
)

// Errors that the functions of this package wrap. All are bad input.
var (
	ErrSizes    = badinput.New("export: bad sizes")
	ErrFormat   = badinput.New("export: unknown format")
	errTooLarge = badinput.New("export: too large for the format")
)

//go:embed sizes.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the json format.
func Schema() []byte { return bytes.Clone(schema) }

// Sizes says how many samples each node trains on in a round.
type Sizes struct {
	Version     int    `json:"version"`      // of the format
	Workload    string `json:"workload"`     // as in the cluster file
	GlobalBatch int    `json:"global_batch"` // samples per round over all nodes, >= 1
	// Generation and Plan number the sizes of a job that a service tunes: starts of its process
	// group, and plans within one, each from 1. Both 0 elsewhere.
	Generation int `json:"generation,omitempty"`
	Plan       int `json:"plan,omitempty"`
	// ReferenceBatch is the batch that the user's learning rate is meant for, in samples. It
	// and the next two fields are zero without a factor; see ScaleLearningRate.
	ReferenceBatch      int     `json:"reference_batch,omitempty"`
	LearningRateScaling string  `json:"learning_rate_scaling,omitempty"` // of Scalings
	LearningRateFactor  float64 `json:"learning_rate_factor,omitempty"`  // (0, 1000]
	// EqualSteps is the number of micro-steps of every rank, whose sizes then differ by at most one sample; 0: each rank has its own.
	EqualSteps int `json:"equal_steps,omitempty"`
	// Deadline says when the ranks stop accumulating; nil: each computes its share.
	Deadline *Deadline `json:"deadline,omitempty"`
	Nodes    []Node    `json:"nodes"` // in the cluster's order
}

// Node is one worker's part of the global batch: its share, in full micro-steps and at most
// one smaller at the end, whose gradients it adds up.
type Node struct {
	Name       string `json:"name"`        // unique
	Device     string `json:"device"`      // device type
	MicroBatch int    `json:"micro_batch"` // samples of a full micro-step, the most that the node holds at once; 0 without a share
	MicroSteps int    `json:"micro_steps"` // in a share: share / micro_batch, rounded up
	Share      int    `json:"share"`       // samples per round; 0: the node takes no part and has no rank
	// GradientWeight is share x ranks / global_batch. A rank multiplies the mean loss of its
	// share by it, so that an equal average over ranks is the mean over samples.
	GradientWeight float64       `json:"gradient_weight"`
	LeftOut        string        `json:"left_out,omitempty"` // why a node has no share; "" where that is not known
	Deadline       *NodeDeadline `json:"deadline,omitempty"` // of a rank, if the sizes have a deadline
	// Limit is the largest micro-batch that the node's memory holds; 0: unknown. Validate
	// checks it; files do not hold it.
	Limit int `json:"-"`
}

// New pairs the cluster's nodes with their shares (0: absent) and computes micro-steps and
// gradient weights. It leaves checks to Validate. If the numbers of shares and nodes differ,
// the result has no nodes.
func New(c *cluster.Cluster, shares []int) Sizes {
	s := Sizes{Version: version, Workload: c.Workload, GlobalBatch: c.GlobalBatch, EqualSteps: c.EqualSteps()}
	if len(shares) != len(c.Nodes) {
		return s
	}
	s.Nodes = make([]Node, len(shares))
	for i, b := range shares {
		n := &c.Nodes[i]
		s.Nodes[i] = Node{Name: n.Name, Device: n.Device, Share: b, Limit: n.Limit}
		if b > 0 {
			s.Nodes[i].MicroBatch = n.MicroBatch(b)
			s.Nodes[i].MicroSteps = cmp.Or(n.Equal, steps(b, n.MicroBatch(b)))
		}
	}
	ranks := len(s.Ranks())
	for i := range s.Nodes {
		s.Nodes[i].GradientWeight = weight(s.Nodes[i].Share, ranks, s.GlobalBatch)
	}
	return s
}

// steps is how many micro-steps make up a share.
func steps(share, micro int) int {
	if micro < 1 {
		return 0
	}
	return (share + micro - 1) / micro
}

func weight(share, ranks, global int) float64 {
	if global == 0 {
		return 0
	}
	return float64(share) * float64(ranks) / float64(global)
}

// Ranks returns the nodes that take part; the index is the rank.
func (s Sizes) Ranks() []Node {
	out := make([]Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.Share > 0 {
			out = append(out, n)
		}
	}
	return out
}

// Validate reports every fault with the path of its field. The error wraps ErrSizes.
func (s Sizes) Validate() error {
	var errs []error
	bad := func(path, format string, args ...any) {
		if len(errs) < maxProblems {
			errs = append(errs, fmt.Errorf("%w: %s: %s", ErrSizes, path, fmt.Sprintf(format, args...)))
		}
	}
	text := func(path, v string) {
		switch {
		case v == "" || len(v) > maxName:
			bad(path, "%d bytes; it must have 1 to %d", len(v), maxName)
		case !printable(v):
			bad(path, "%q holds unprintable characters", v)
		}
	}
	if s.Version != version {
		bad("version", "is %d; this program reads version %d", s.Version, version)
	}
	text("workload", s.Workload)
	if s.GlobalBatch < 1 || s.GlobalBatch > cluster.MaxGlobalBatch {
		bad("global_batch", "is %d; it must lie in 1..%d samples", s.GlobalBatch, cluster.MaxGlobalBatch)
	}
	if s.Generation < 0 || s.Plan < 0 || (s.Generation > 0) != (s.Plan > 0) {
		bad("plan", "is %d of generation %d; both count from 1, or are left out", s.Plan, s.Generation)
	}
	if s.EqualSteps < 0 || s.EqualSteps > 0 && s.Deadline != nil {
		bad("equal_steps", "is %d; it must be at least 1, or absent as with a deadline", s.EqualSteps)
	}
	s.checkLearningRate(bad)
	if len(s.Nodes) == 0 || len(s.Nodes) > cluster.MaxNodes {
		bad("nodes", "%d nodes; there must be 1 to %d, with one size each", len(s.Nodes), cluster.MaxNodes)
	}
	seen := make(map[string]int, len(s.Nodes))
	ranks, sum := len(s.Ranks()), 0
	for i, n := range s.Nodes {
		path := fmt.Sprintf("nodes[%d]", i)
		text(path+".name", n.Name)
		text(path+".device", n.Device)
		if first, taken := seen[n.Name]; taken {
			bad(path+".name", "%q is also the name of nodes[%d]", n.Name, first)
		}
		seen[n.Name] = i
		if !n.check(path, s.EqualSteps, bad) {
			continue
		}
		sum += n.Share
		want := weight(n.Share, ranks, s.GlobalBatch)
		if !(math.Abs(n.GradientWeight-want) <= 1e-6*want) {
			bad(path+".gradient_weight", "is %v; share x ranks / global_batch is %v", n.GradientWeight, want)
		}
	}
	if sum != s.GlobalBatch {
		bad("nodes", "the shares sum to %d, global_batch is %d", sum, s.GlobalBatch)
	}
	s.checkDeadline(bad)
	return errors.Join(errs...)
}

// check reports the node's faults to bad, and returns whether its share can be counted.
func (n *Node) check(path string, equal int, bad func(path, format string, args ...any)) bool {
	if n.Share < 0 || n.Share > cluster.MaxGlobalBatch {
		bad(path+".share", "is %d; it must be at least 1, or 0 for a node that takes no part", n.Share)
		return false
	}
	if len(n.LeftOut) > maxName || !printable(n.LeftOut) || n.LeftOut != "" && n.Share > 0 {
		bad(path+".left_out", "must be a few printable words, of a node without a share")
	}
	switch {
	case n.MicroBatch < min(n.Share, 1) || n.MicroBatch > n.Share:
		bad(path+".micro_batch", "is %d; with a share of %d it must lie in %d..%d", n.MicroBatch, n.Share, min(n.Share, 1), n.Share)
	case n.Limit > 0 && n.MicroBatch > n.Limit:
		bad(path+".micro_batch", "is %d, but the memory of %s holds %d", n.MicroBatch, n.Name, n.Limit)
	case equal > 0 && n.Share > 0 && (n.MicroSteps != equal || n.MicroBatch != steps(n.Share, equal) || n.Share < equal):
		bad(path+".micro_steps", "is %d of %d; with equal_steps %d a share of %d takes %d of %d", n.MicroSteps, n.MicroBatch, equal, n.Share, equal, steps(n.Share, equal))
	case (equal == 0 || n.Share == 0) && n.MicroSteps != steps(n.Share, n.MicroBatch):
		bad(path+".micro_steps", "is %d; a share of %d in micro-batches of %d takes %d", n.MicroSteps, n.Share, n.MicroBatch, steps(n.Share, n.MicroBatch))
	}
	return true
}

// printable rejects line breaks of any script too, which keeps every form readable by line.
func printable(v string) bool {
	return utf8.ValidString(v) && !strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Read reads the json format, at most 64 MiB, and validates it. Unknown fields and anything
// after the object are errors. All errors except those of r wrap ErrSizes.
func Read(r io.Reader) (Sizes, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return Sizes{}, fmt.Errorf("export: %w", err)
	}
	if len(data) > maxFileBytes {
		return Sizes{}, fmt.Errorf("%w: larger than %d bytes", ErrSizes, maxFileBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var s Sizes
	if err := d.Decode(&s); err != nil {
		line := 1 + bytes.Count(data[:min(int(d.InputOffset()), len(data))], []byte("\n"))
		return Sizes{}, fmt.Errorf("%w: line %d or after: %w", ErrSizes, line, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Sizes{}, fmt.Errorf("%w: more text after the object", ErrSizes)
	}
	if err := s.Validate(); err != nil {
		return Sizes{}, err
	}
	return s, nil
}

// Write validates s and writes it in the named format with one call of w.Write. The error
// wraps ErrFormat if the name is unknown; it is bad input if the format cannot hold s.
func Write(w io.Writer, format string, s Sizes) error {
	data, err := encode(format, s)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Save writes s to the file at path, which it replaces only by a complete one.
func Save(path, format string, s Sizes) error {
	data, err := encode(format, s)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o644)
}

func encode(name string, s Sizes) ([]byte, error) {
	f, err := Find(name)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := f.write(&b, s); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
