// Package export writes micro-batch sizes in the forms that trainers read.
//
//	s := export.New(c, sizes)                  // sizes as cluster.Allocate wrote them
//	err := s.ScaleLearningRate("sqrt", 256, 0) // if the batch differs from the user's
//	err = export.Save("sizes.json", "json", s) // or Write, to any writer
//	s, err = export.Read(file)                 // reads and checks the json form
//
// See the Example. [Formats] lists the forms: json, yaml, csv, torchrun, deepspeed and
// kubernetes.
//
// The nodes that take part are the ranks of the training job, in their order in the
// cluster: [Sizes.Ranks] is indexed by rank. Each comes with its gradient weight, because
// trainers average gradients equally over ranks whatever their batch.
//
// docs/reference/formats/sizes.md describes every form, docs/guides/trainers.md their use.
package export

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// version is that of the sizes format.
const version = 2

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
	ErrTooLarge = badinput.New("export: too large for the format")
)

//go:embed sizes.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the json form.
func Schema() []byte { return bytes.Clone(schema) }

// Sizes says how many samples each node trains on in a round.
type Sizes struct {
	Version     int    `json:"version"`      // of the format
	Workload    string `json:"workload"`     // as in the cluster file
	GlobalBatch int    `json:"global_batch"` // samples per round over all nodes, >= 1
	// ReferenceBatch is the batch that the user's learning rate is meant for, in samples. It
	// and the next two fields are zero without a factor; see ScaleLearningRate.
	ReferenceBatch      int     `json:"reference_batch,omitempty"`
	LearningRateScaling string  `json:"learning_rate_scaling,omitempty"` // of Scalings
	LearningRateFactor  float64 `json:"learning_rate_factor,omitempty"`  // (0, 1000]
	Nodes               []Node  `json:"nodes"`                           // in the cluster's order
}

// Node is one worker's part of the global batch.
type Node struct {
	Name       string `json:"name"`        // unique
	Device     string `json:"device"`      // device type
	MicroBatch int    `json:"micro_batch"` // samples per round; 0: the node takes no part and has no rank
	// GradientWeight is micro_batch x ranks / global_batch. A rank multiplies its mean loss
	// by it, so that an equal average over ranks is the mean over samples.
	GradientWeight float64 `json:"gradient_weight"`
	// Limit is the largest micro-batch that the node's memory holds; 0: unknown. Validate
	// checks it; files do not hold it.
	Limit int `json:"-"`
}

// New pairs the cluster's nodes with their sizes (0: absent) and computes the gradient
// weights. It leaves checks to Validate. If the numbers of sizes and nodes differ, the
// result has no nodes.
func New(c *cluster.Cluster, sizes []int) Sizes {
	s := Sizes{Version: version, Workload: c.Workload, GlobalBatch: c.GlobalBatch}
	if len(sizes) != len(c.Nodes) {
		return s
	}
	s.Nodes = make([]Node, len(sizes))
	for i, b := range sizes {
		n := &c.Nodes[i]
		s.Nodes[i] = Node{Name: n.Name, Device: n.Device, MicroBatch: b, Limit: n.Limit}
	}
	ranks := len(s.Ranks())
	for i := range s.Nodes {
		s.Nodes[i].GradientWeight = weight(s.Nodes[i].MicroBatch, ranks, s.GlobalBatch)
	}
	return s
}

func weight(micro, ranks, global int) float64 {
	if global == 0 {
		return 0
	}
	return float64(micro) * float64(ranks) / float64(global)
}

// Ranks returns the nodes that take part; the index is the rank.
func (s Sizes) Ranks() []Node {
	out := make([]Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		if n.MicroBatch > 0 {
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
		switch {
		case n.MicroBatch < 0 || n.MicroBatch > cluster.MaxGlobalBatch:
			bad(path+".micro_batch", "is %d; it must be at least 1, or 0 for a node that takes no part", n.MicroBatch)
			continue
		case n.Limit > 0 && n.MicroBatch > n.Limit:
			bad(path+".micro_batch", "is %d, but the memory of %s holds %d", n.MicroBatch, n.Name, n.Limit)
		}
		sum += n.MicroBatch
		want := weight(n.MicroBatch, ranks, s.GlobalBatch)
		if !(math.Abs(n.GradientWeight-want) <= 1e-6*want) {
			bad(path+".gradient_weight", "is %v; micro_batch x ranks / global_batch is %v", n.GradientWeight, want)
		}
	}
	if sum != s.GlobalBatch {
		bad("nodes", "the micro-batches sum to %d, global_batch is %d", sum, s.GlobalBatch)
	}
	return errors.Join(errs...)
}

// printable rejects line breaks of any script too, which keeps every form readable by line.
func printable(v string) bool {
	for _, r := range v {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(v)
}

// Read reads the json form, at most 64 MiB, and validates it. Unknown fields and anything
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
// wraps ErrFormat if the name is unknown and ErrTooLarge if the format cannot hold s.
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
	f, err := lookup(name)
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
