package bucket

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// signed is the file of a plan whose fields were changed, with the checksum that belongs to them.
func signed(t *testing.T, change func(*Plan)) []byte {
	table := stepcost.Table{}
	for _, n := range []int{5, 20, 35, 50, 80} {
		for _, b := range []int{1, 2, 4, 8} {
			table = append(table, stepcost.Trial{Length: n, Batch: b, Seconds: .1 + .011*float64(n*b), OutOfMemory: n > 20 || n*b > 160})
		}
	}
	c, err := stepcost.New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(Lengths{1, 3, 1, 4, 8}, c, Config{Speeds: []float64{1, 1.5}, Mixing: with(1)})
	if err != nil {
		t.Fatal(err)
	}
	change(p)
	if p.Checksum, err = p.sum(); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A checksum that is right proves nothing about the fields.
func TestSignedPlans(t *testing.T) {
	if _, err := ReadPlan(bytes.NewReader(signed(t, func(*Plan) {})), "plan.json"); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Plan){
		"no anchors":        func(p *Plan) { p.Anchors = nil },
		"falling anchors":   func(p *Plan) { p.Anchors = []float64{2, 1} },
		"an anchor below 0": func(p *Plan) { p.Anchors[0] = -1 },
		"a speed short":     func(p *Plan) { p.Speeds = p.Speeds[:1] },
		"a speed of 0":      func(p *Plan) { p.Speeds[0] = 0 },
		"too many ranks":    func(p *Plan) { p.Ranks, p.Speeds = 1<<40, nil },
		"micro-batches":     func(p *Plan) { p.MicroBatches = -1 },
		"steps":             func(p *Plan) { p.Steps = p.Samples + 1 },
		"limit":             func(p *Plan) { p.Limit = math.MaxInt },
		"a batch of 0":      func(p *Plan) { p.Table[1].Batch = 0 },
		"a row twice":       func(p *Plan) { p.Table[1] = p.Table[0] },
		"no time":           func(p *Plan) { p.Table[0].Seconds = 0 },
	} {
		if _, err := ReadPlan(bytes.NewReader(signed(t, change)), "plan.json"); !badinput.Is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
