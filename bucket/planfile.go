package bucket

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// Plan says how the epochs of a data set are cut into batches. Make makes one; one that was read needs Bind before Schedule.
type Plan struct {
	Version int    `json:"version"`
	Samples int    `json:"samples"`
	Data    string `json:"data"` // checksum of the lengths
	Config
	Bands []Band `json:"bands"` // for people
	Limit int    `json:"limit"` // longest length that is batched
	// Anchors are the anchor durations in seconds on the fastest rank, rising. A batch takes no longer than the largest anchor that the
	// largest batch of its length reaches, unless a single sample does.
	Anchors           []float64 `json:"anchors"`
	LowerBoundSeconds float64   `json:"lower_bound_seconds"`
	Score

	// Table and Memory (bytes; 0: the largest peak that ran) define the cost, so that a schedule needs only the plan and the lengths.
	Table    stepcost.Table `json:"table"`
	Memory   int64          `json:"memory_bytes"`
	Checksum string         `json:"checksum"` // of all other fields

	given  Cost
	cost   device
	hist   []uint32
	best   []int     // by length: the largest batch
	rate   []float64 // by length: its seconds per sample
	target []float64 // by length: the anchor duration
	width  []uint32  // by length: its jitter
}

// Band is a range of lengths, and the batches of these lengths, for people to read.
type Band struct {
	Upper   int     `json:"upper"`   // longest length; the shortest is the previous Upper plus 1
	Samples int     `json:"samples"` // in the data set
	Batch   int     `json:"batch"`   // samples of a batch of the longest on the fastest rank
	Seconds float64 `json:"seconds"` // predicted, of such a batch on that rank
}

// planVersion is that of the plan file.
const planVersion = 3

// planSchema is the plan file's published schema.
//
//go:embed plan.schema.json
var planSchema []byte

// Schema is the JSON schema of plan files, draft 2020-12.
func Schema() []byte { return bytes.Clone(planSchema) }

// maxPlanBytes bounds what ReadPlan takes.
const maxPlanBytes = 256 << 20

// Write writes the plan file.
func (p *Plan) Write(w io.Writer) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// sum is the XXH3 of the compact JSON with an empty checksum.
func (p *Plan) sum() (string, error) {
	q := *p
	q.Checksum = ""
	data, err := json.Marshal(&q)
	if err != nil {
		return "", fmt.Errorf("plan: %w", err)
	}
	return fmt.Sprintf("%016x", xxh3.Hash(data)), nil
}

// ReadPlan reads a plan file; Bind then joins it with its lengths.
func ReadPlan(r io.Reader, name string) (*Plan, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPlanBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxPlanBytes:
		return nil, badinput.Errorf("%s: larger than %d bytes", name, maxPlanBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	p := &Plan{}
	if err := d.Decode(p); err != nil {
		return nil, badinput.Errorf("%s: not a plan: %v", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badinput.Errorf("%s: text after the plan", name)
	}
	if p.Version != planVersion {
		return nil, badinput.Errorf("%s: version %d; this program reads %d: make the plan again", name, p.Version, planVersion)
	}
	if sum, err := p.sum(); err != nil || sum != p.Checksum {
		return nil, badinput.Errorf("%s: checksum: the file was changed or damaged; make the plan again", name)
	}
	if err := p.check(); err != nil {
		return nil, badinput.Errorf("%s: %v", name, err)
	}
	return p, nil
}

// check reports fields with which Schedule would not work: another program may have signed them.
func (p *Plan) check() error {
	if err := p.complete(); err != nil {
		return err
	}
	if p.Steps < 0 || p.Steps > p.Samples || p.Limit < 1 || p.Limit > MaxLength {
		return errors.New("limit or steps: missing or out of range")
	}
	if len(p.Anchors) == 0 || !(p.Anchors[0] >= 0) || math.IsInf(p.Anchors[len(p.Anchors)-1], 0) || !slices.IsSorted(p.Anchors) {
		return errors.New("anchors: missing, below 0 or not rising")
	}
	for i, t := range p.Table {
		if t.Length < 1 || t.Length > MaxLength || t.Batch < 1 || t.Batch > MaxLength || !t.OutOfMemory && !(t.Seconds > 0 && t.Seconds < 1e9) ||
			i > 0 && cmp.Or(t.Length-p.Table[i-1].Length, t.Batch-p.Table[i-1].Batch) <= 0 {
			return fmt.Errorf("table: row %d is out of range or order", i)
		}
	}
	return nil
}
