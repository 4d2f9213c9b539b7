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

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

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
	sum, err := p.sum()
	if err != nil {
		return err
	}
	p.Checksum = sum
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

// ReadPlan reads a plan file; Bind then joins it with its lengths. Errors are of ErrInput
// or the reader's own.
func ReadPlan(r io.Reader, name string) (*Plan, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPlanBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxPlanBytes:
		return nil, input.Errorf("%s: larger than %d bytes", name, maxPlanBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	p := &Plan{}
	if err := d.Decode(p); err != nil {
		return nil, input.Errorf("%s: not a plan: %v", name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, input.Errorf("%s: text after the plan", name)
	}
	if p.Version != planVersion {
		return nil, input.Errorf("%s: version %d; this program reads %d: make the plan again", name, p.Version, planVersion)
	}
	if sum, err := p.sum(); err != nil || sum != p.Checksum {
		return nil, input.Errorf("%s: checksum: the file was changed or damaged; make the plan again", name)
	}
	if err := p.check(); err != nil {
		return nil, input.Errorf("%s: %v", name, err)
	}
	return p, nil
}

// config is what the plan was made by.
func (p *Plan) config() Config {
	return Config{Ranks: p.Ranks, Speeds: p.Speeds, Mixing: &p.Mixing, Overlong: p.Overlong, MicroBatches: p.MicroBatches,
		MaxSamples: p.MaxSamples, MaxTokens: p.MaxTokens, PadTo: p.PadTo, BatchMultiple: p.BatchMultiple, Packed: p.Packed}
}

// check holds a plan to what Schedule needs.
func (p *Plan) check() error {
	f := p.config()
	if err := f.fill(); err != nil {
		return err
	}
	if p.FreeCut && !p.Pairs {
		return errors.New("free_cut: only where samples have two lengths")
	}
	if p.Pairs {
		if err := f.checkPairs(); err != nil {
			return err
		}
		if !(p.BandArea > 0 && p.BandArea < 1e9) {
			return errors.New("band_area: missing or out of range")
		}
	}
	within := func(x, low, high int) bool { return x >= low && x <= high }
	if !within(p.Steps, 0, p.Samples) || !within(p.EvenSteps, 0, p.Samples) || !within(p.Limit, 1, MaxLength) {
		return errors.New("limit, steps or even_steps: missing or out of range")
	}
	if len(p.Anchors) == 0 || !(p.Anchors[0] >= 0) || math.IsInf(p.Anchors[len(p.Anchors)-1], 0) || !slices.IsSorted(p.Anchors) {
		return errors.New("anchors: missing, below 0 or not rising")
	}
	return p.checkTable()
}

func (p *Plan) checkTable() error {
	for i, t := range p.Table {
		if t.Length < 1 || t.Length > MaxLength || t.Target < 0 || t.Target > MaxLength || (t.Target > 0) != p.Pairs || t.Batch < 1 || t.Batch > MaxLength || !t.OutOfMemory && !(t.Seconds > 0 && t.Seconds < 1e9) ||
			i > 0 && cmp.Or(t.Length-p.Table[i-1].Length, t.Target-p.Table[i-1].Target, t.Batch-p.Table[i-1].Batch) <= 0 {
			return fmt.Errorf("table: row %d is out of range or order", i)
		}
	}
	return nil
}

// Bind joins a plan that was read with the lengths it was made for; others are an error.
func (p *Plan) Bind(l Lengths) error {
	if p.Pairs {
		return input.Errorf("the plan is for samples of two lengths, padded apart: give both columns")
	}
	return p.bind(l, nil)
}

func (p *Plan) bind(l Lengths, two *paired) error {
	p.two = two
	if sum := p.checksum(l); len(l) != p.Samples || sum != p.Data {
		return input.Errorf("the lengths are not those of the plan (%d samples with checksum %s; these are %d with %s): plan anew with these lengths", p.Samples, p.Data, len(l), sum)
	}
	var c Cost
	var err error
	if two != nil {
		two.of, err = stepcost.NewPair(p.Table, p.Memory)
	} else {
		c, err = stepcost.New(p.Table, p.Memory)
	}
	if err != nil {
		return err
	}
	rate, err := p.prepare(l, l.histogram(), c, two)
	if err != nil {
		return err
	}
	if !p.Packed {
		p.aim(rate)
	}
	if two != nil {
		p.aimPairs()
	}
	return nil
}

// checksum names the lengths of which a plan is, of one kind or two.
func (p *Plan) checksum(l Lengths) string {
	if p.two != nil {
		return (&Pairs{l, p.two.shapes}).Checksum()
	}
	return l.Checksum()
}

// Cost is what the plan predicts by, once it was made or bound.
func (p *Plan) Cost() Cost { return p.cost }

// State says where in an epoch a job stands: under 1 KB of JSON, where its ranks have always been the plan's. Step is the number of steps done.
type State struct {
	Version int    `json:"version"` // 1
	Data    string `json:"data"`    // checksum of the lengths
	Plan    string `json:"plan"`    // checksum of the plan
	Ranks   int    `json:"ranks"`
	Seed    uint64 `json:"seed"`
	Epoch   uint64 `json:"epoch"`
	Step    int    `json:"step"`
	Parts   []Part `json:"parts,omitempty"` // of the epoch so far, where not the plan's own ranks made all of it
}

// maxState bounds what ReadState takes.
const maxState = 16 << 20

// ReadState reads a state file. Errors are of ErrInput.
func ReadState(r io.Reader, name string) (State, error) {
	var s State
	d := json.NewDecoder(io.LimitReader(r, maxState))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, input.Errorf("%s: not a resume state: %v", name, err)
	}
	if s.Version != 1 || s.Step < 0 || s.Ranks < 1 {
		return s, input.Errorf("%s: version %d, step %d, ranks %d: not a resume state of this program", name, s.Version, s.Step, s.Ranks)
	}
	return s, nil
}
