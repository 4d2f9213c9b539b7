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

	"evenkeel/bucket/internal/input"
	"evenkeel/bucket/stepcost"
)

// Plan says how the epochs of a data set are cut into batches. It is what a plan file holds. A package of a mode makes it
// (plain.Make, paired.Make), or binds a plan that was read to its lengths; the result is a Planner.
type Plan struct {
	Version       int       `json:"version"`
	Samples       int       `json:"samples"`
	Data          string    `json:"data"`           // checksum of the lengths
	Read          *Reading  `json:"read,omitempty"` // how the lengths were read from their file; nil: without options
	Mixing        float64   `json:"mixing"`
	Ranks         int       `json:"ranks"`
	Speeds        []float64 `json:"speeds"`
	MicroBatches  int       `json:"micro_batches"`
	MaxSamples    int       `json:"max_samples"`
	MaxTokens     int       `json:"max_tokens"`
	PadTo         int       `json:"pad_to"`
	BatchMultiple int       `json:"batch_multiple"`
	Pairs         bool      `json:"pairs,omitempty"` // samples have two lengths, padded apart
	Bands         []Band    `json:"bands"`           // for people
	Overlong      string    `json:"overlong"`
	Limit         int       `json:"limit"` // longest length that is batched
	Prediction    string    `json:"prediction"`
	Tile          int       `json:"tile,omitempty"` // tokens of a tile, if the prediction rounds tokens up to whole tiles

	// Anchors are the anchor durations in seconds on the fastest rank, rising. A batch takes no longer than the largest anchor that the
	// most efficient batch of its length reaches, unless a single sample does.
	Anchors []float64 `json:"anchors"`
	Settings
	LowerBoundSeconds float64 `json:"lower_bound_seconds"`
	Score

	// Table and Memory (bytes; 0: the largest peak that ran) define the cost, so that a schedule needs only the plan and the lengths.
	Table    stepcost.Table        `json:"table"`
	Memory   int64                 `json:"memory_bytes"`
	Predicts *stepcost.Predictions `json:"predicts,omitempty"` // what the table predicts, for online loaders; this program fits the table
	Checksum string                `json:"checksum"`           // of all other fields, as Write writes them
}

// Settings are what planning finds by cutting whole epochs, besides the anchors.
type Settings struct {
	// Dither is the largest part of the anchor by which a batch is shortened at random, so that in every epoch batches of other
	// lengths end together.
	Dither float64 `json:"dither"`
	// DitherFrom is the smallest most efficient batch that is shortened, in samples.
	DitherFrom int `json:"dither_from"`
	// Tolerance is the largest relative difference between the durations of batches that may be mixed at random into one step.
	Tolerance float64 `json:"tolerance"`
	// EvenSteps, above 0 in small data sets, is the number of steps that the samples fill; anchors are shortened for that.
	EvenSteps int `json:"even_steps"`
	// BandArea, for two lengths: the width of a band of sources (as a logarithm) times its number of batches.
	BandArea float64 `json:"band_area,omitempty"`
	// FreeCut, for two lengths: batches are cut for the least work of the epoch, whatever their durations, not to the anchors.
	FreeCut bool `json:"free_cut,omitempty"`
}

// Reading says how a file of lengths is read, as lengthfile.Options.
type Reading struct {
	Column string  `json:"column,omitempty"`
	Pair   string  `json:"pair,omitempty"`
	Scale  float64 `json:"scale,omitempty"`
}

// Band is a range of lengths, and the batches of these lengths, for people to read.
type Band struct {
	Upper   int     `json:"upper"`            // longest length (of two lengths, source); the shortest is the previous Upper plus 1
	Target  int     `json:"target,omitempty"` // longest target, with two lengths
	Samples int     `json:"samples"`          // in the data set
	Batch   int     `json:"batch"`            // samples of a batch of the longest on the fastest rank; with two lengths the predicted mean
	Seconds float64 `json:"seconds"`          // predicted, of such a batch on that rank
}

// planVersion is that of the plan file.
const planVersion = 2

// NewPlan begins a plan from a complete configuration.
func NewPlan(f Config, samples int) Plan {
	return Plan{Version: planVersion, Samples: samples, Mixing: *f.Mixing, Ranks: f.Ranks, Speeds: f.Speeds, MicroBatches: f.MicroBatches, MaxSamples: f.MaxSamples,
		MaxTokens: f.MaxTokens, PadTo: f.PadTo, BatchMultiple: f.BatchMultiple, Overlong: f.Overlong, Prediction: "formula"}
}

// Planner is a plan with the lengths that it was made for: a *plain.Plan or *paired.Plan.
type Planner interface {
	File() *Plan
	// Cost is what the plan predicts by.
	Cost() Cost
	// Schedule cuts an epoch of the lengths that the plan was made for.
	Schedule(l Lengths, seed, epoch uint64) *Schedule
	// Rest plans the rest of an epoch for other ranks, with the same costs.
	Rest(l Lengths, g Group) (Planner, error)
	// Of are the samples of its schedules.
	Of(l Lengths) Samples
	// StepBatches is the number of batches of each rank in a full step.
	StepBatches() []int
}

// From records the table from which a cost was made, if there is one. A schedule then needs only the plan and the lengths.
func (p *Plan) From(c any) {
	switch t := c.(type) {
	case *stepcost.Model:
		p.Prediction, p.Tile, p.Predicts = t.Smoothed(), t.Tile(), t.Predictions()
		p.Table, p.Memory = t.Source()
	case *stepcost.PairModel:
		p.Prediction = "fit"
		p.Table, p.Memory = t.Source()
	}
}

// CheckData reports if a plan was made for another mode or for other lengths.
func (p *Plan) CheckData(pairs bool, samples int, sum string) error {
	switch {
	case p.Pairs && !pairs:
		return input.Errorf("the plan is for samples of two lengths, padded apart: give both columns")
	case pairs && !p.Pairs:
		return input.Errorf("the plan is for samples of one length: give one column, or two as --pair sum or max, as it was made")
	}
	if samples != p.Samples || sum != p.Data {
		return input.Errorf("the lengths are not those of the plan (%d samples with checksum %s; these are %d with %s): plan anew with these lengths", p.Samples, p.Data, samples, sum)
	}
	return nil
}

// Of are the samples of a schedule of this plan, for samples of one length.
func (p *Plan) Of(l Lengths) Samples {
	limit := p.Limit
	tokens := func(samples []uint32) (n int) {
		for _, i := range samples {
			n += min(int(l[i]), limit)
		}
		return n
	}
	skip := p.Overlong == Skip
	return p.Sized(Samples{Lengths: l, Limit: limit, Tokens: tokens, Skips: func(length uint32) bool { return skip && int(length) > limit }})
}

// Sized computes the mean step of the predicted epoch.
func (p *Plan) Sized(s Samples) Samples {
	for i, v := range s.Lengths {
		if !s.Skips(v) {
			s.StepSamples++
			s.StepTokens += float64(s.Tokens([]uint32{uint32(i)}))
		}
	}
	s.StepSamples /= float64(max(1, p.Steps))
	s.StepTokens /= float64(max(1, p.Steps))
	return s
}

// File is the plan itself.
func (p *Plan) File() *Plan { return p }

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

// Config is what the plan was made by.
func (p *Plan) Config() Config {
	return Config{Ranks: p.Ranks, Speeds: p.Speeds, Mixing: &p.Mixing, Overlong: p.Overlong, MicroBatches: p.MicroBatches,
		MaxSamples: p.MaxSamples, MaxTokens: p.MaxTokens, PadTo: p.PadTo, BatchMultiple: p.BatchMultiple}
}

// ConfigOf is what the plan was made by, for another group of ranks.
func (p *Plan) ConfigOf(g Group) Config {
	f := p.Config()
	f.Ranks, f.Speeds = g.Ranks, g.Speeds
	return f
}

// check reports fields with which Schedule would not work.
func (p *Plan) check() error {
	f := p.Config()
	if err := f.Complete(); err != nil {
		return err
	}
	if p.FreeCut && !p.Pairs {
		return errors.New("free_cut: only where samples have two lengths")
	}
	if p.Pairs && !(p.BandArea > 0 && p.BandArea < 1e9) {
		return errors.New("band_area: missing or out of range")
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
