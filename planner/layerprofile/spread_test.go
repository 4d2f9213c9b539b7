package layerprofile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

const spreadHeader = "layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes,selective_bytes,sequence_bytes,machines,context_bytes,experts,expert_parameters,expert_bytes,tied_parameters\n"

// What replicas divide beside tensors is read, measurements over several machines are their own, and all is written as it was read.
func TestSpread(t *testing.T) {
	text := spreadHeader +
		"0,9,8,x,1,1,1,100,,,0,16,0,0,0,\n" +
		"0,9,8,x,16,1,1,90,10,30,2,16,,,,\n0,9,8,x,16,4,2,80,5,20,2,16,,,,\n0,9,8,x,16,1,0.5,90,,,,16,,,,\n" +
		"1,9,8,x,1,1,1,100,,,,,4,6,3,\n1,9,8,x,16,1,1,90,,,2,,4,6,3,\n"
	p, err := Read(strings.NewReader(text), "p.csv")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := &p.Layers[0], &p.Layers[1]; a.Context != 16 || b.Context != 0 || a.Experts != 0 || b.Experts != 4 || b.ExpertParameters != 6 || b.ExpertBytes != 3 {
		t.Errorf("%+v", p.Layers)
	}
	if got := p.Degrees("x"); !slices.Equal(got, []Degree{{1, 1}, {16, 2}}) {
		t.Errorf("degrees %v: 16 in one machine was not measured for every layer", got)
	}
	// Of two measured micro-batches the smaller bytes are saved.
	if r, ok := p.Layers[0].Curve("x", Degree{16, 2}).At(2); !ok || r.Sequence != 20 || r.Freed != 5 || r.Forward != 1+1.0/3 {
		t.Errorf("%+v", r)
	}
	if c := p.Layers[0].Curve("x", Degree{16, 1}); len(c) != 1 || c[0].Forward != 0.5 {
		t.Errorf("%+v", c)
	}
	var b bytes.Buffer
	if err := p.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Read(&b, "p.csv")
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Layers {
		if !p.Layers[i].alike(&again.Layers[i]) {
			t.Errorf("%+v was written and read as %+v", p.Layers[i], again.Layers[i])
		}
	}
}

func TestBadSpread(t *testing.T) {
	for row, want := range map[string]string{
		"0,9,8,x,16,1,1,90,,,3,,,,,":      "machines is 3; must divide the tensor degree",
		"0,9,8,x,16,1,1,90,,,-1,,,,,":     `machines is "-1"; want a whole number of at least 0`,
		"0,9,8,x,2,1,1,90,50,41,,,,,,":    "sequence: 41 bytes, beside 50 selective; must be parts of the 90",
		"0,9,8,x,1,1,1,90,,,,-1,,,,":      `context_bytes is "-1"; want a number of at least 0`,
		"0,9,8,x,1,1,1,90,,,,,2.5,1,1,":   `experts is "2.5"; want a whole number`,
		"0,9,8,x,1,1,1,90,,,,,70000,1,1,": "70000 experts; must lie in 0..65536",
		"0,9,8,x,1,1,1,90,,,,,4,10,1,":    "experts of 10 parameters and 1 bytes; must be a part of the layer's 9",
		"0,9,8,x,1,1,1,90,,,,,4,5,,":      "it has experts: say their expert_parameters and the expert_bytes",
		"0,9,8,x,1,1,1,90,,,,,,5,1,":      "but no experts: say how many",
		// Of 9 parameters 6 are the experts'.
		"0,9,8,x,1,1,1,90,,,,,,,,\n1,9,8,x,1,1,1,90,,,,,4,6,1,4": "4 tied parameters; only the last layer may share parameters with the first, no more than either has beside experts",
		"0,9,8,x,1,1,1,90,,,,,4,6,1,\n1,9,8,x,1,1,1,90,,,,,,,,4": "4 tied parameters",
	} {
		if _, err := Read(strings.NewReader(spreadHeader+row+"\n"), "p.csv"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", row, err, want)
		}
	}
}
