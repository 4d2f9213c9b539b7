package layerprofile

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

const small = `layer,name,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,backward_seconds,update_seconds,activation_bytes
0,embedding,1000,64,x,1,1,0.5,1,0.1,100
1-3,block,4000,64,x,1,1,1,,0.1,400
1-3,block,4000,64,x,1,4,3,6,0.1,400
0,embedding,1000,64,x,1,4,0.4,1,0.1,100
`

func TestProfileFiles(t *testing.T) {
	p, err := Read(strings.NewReader(small), "small.csv")
	if err != nil {
		t.Fatal(err)
	}
	if p.Model != "small" || len(p.Layers) != 4 || p.Layers[3].Name != "block" || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "fall") {
		t.Fatalf("%+v", p)
	}
	times := p.Layers[2].Curve("x", Degree{1, 1})
	if r, ok := times.At(2); !ok || math.Abs(r.Forward-5.0/3) > 1e-12 || math.Abs(r.Backward-10.0/3) > 1e-12 {
		t.Fatalf("%+v", r)
	}
	if _, ok := times.At(5); ok {
		t.Fatal("beyond the largest micro-batch")
	}
	var out bytes.Buffer
	if err := p.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	again, err := Read(&out, "small.csv")
	if err != nil || len(again.Layers) != 4 || again.Layers[0].Runs[1] != p.Layers[0].Runs[1] {
		t.Fatalf("%v %+v", err, again)
	}
}

// What selective recomputation takes and frees is read, interpolated and written again.
func TestSelective(t *testing.T) {
	const csv = `layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes,selective_seconds,selective_bytes
0,50,64,x,1,1,1,100,,
1,4000,64,x,1,1,1,400,0.25,300
1,4000,64,x,1,3,3,500,0.75,200
`
	p, err := Read(strings.NewReader(csv), "f.csv")
	if err != nil {
		t.Fatal(err)
	}
	// Between two micro-batches the more is kept.
	if r, ok := p.Layers[1].Curve("x", Degree{1, 1}).At(2); !ok || r.Selective != 0.5 || r.Activation != 500 || r.Freed != 200 {
		t.Errorf("%+v", r)
	}
	var out bytes.Buffer
	if err := p.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(&out, "f.csv"); err != nil || again.Layers[1].Runs[0] != p.Layers[1].Runs[0] || again.Layers[0].Runs[0] != p.Layers[0].Runs[0] {
		t.Errorf("%v %+v", err, again)
	}
	for _, bad := range []string{"1.1,300", "0.25,401", "-1,300", "0.25,-1", "0.25,x"} {
		if _, err := Read(strings.NewReader(strings.Replace(csv, "0.25,300", bad, 1)), "f.csv"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), "selective") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Tied parameters are read and written again.
func TestTied(t *testing.T) {
	const csv = `layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes,tied_parameters
0,50,64,x,1,1,1,100,
1,4000,64,x,1,1,1,400,0
2,60,64,x,1,1,1,400,40
`
	p, err := Read(strings.NewReader(csv), "f.csv")
	if err != nil || p.Layers[0].Tied != 0 || p.Layers[2].Tied != 40 {
		t.Fatalf("%v %+v", err, p)
	}
	var out bytes.Buffer
	if err := p.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(&out, "f.csv"); err != nil || again.Layers[2].Tied != 40 || again.Layers[1].Tied != 0 {
		t.Fatalf("%v %+v", err, again)
	}
	for _, bad := range []string{"2,60,64,x,1,1,1,400,51", "2,30,64,x,1,1,1,400,31", "2,60,64,x,1,1,1,400,-1", "2,60,64,x,1,1,1,400,40\n3,60,64,x,1,1,1,400,0", "2,60,64,x,1,1,1,400,nan"} {
		text := strings.Replace(csv, "2,60,64,x,1,1,1,400,40", bad, 1)
		if _, err := Read(strings.NewReader(text), "f.csv"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), "tied") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	first := strings.SplitAfter(csv, "100,\n")[0]
	if _, err := Read(strings.NewReader(strings.Replace(first, "100,\n", "100,5\n", 1)), "f.csv"); !errors.Is(err, ErrProfile) {
		t.Error("one layer is tied to itself")
	}
}

// Where a time of the forward pass is lowered, so is what of it is done again.
func TestSelectiveFalls(t *testing.T) {
	const csv = `layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes,selective_seconds
0,50,64,x,1,1,4,100,3
0,50,64,x,1,2,2,100,1
0,50,64,x,1,4,4,100,1
`
	p, err := Read(strings.NewReader(csv), "f.csv")
	if err != nil || p.Layers[0].Runs[0].Forward != 1 || p.Layers[0].Runs[0].Selective != 0.75 {
		t.Errorf("%v %+v", err, p)
	}
}

func TestBadProfiles(t *testing.T) {
	head := strings.SplitAfter(small, "\n")[0]
	for name, c := range map[string]struct{ text, want string }{
		"empty":    {"", "0 layers"},
		"column":   {"layer,speed\n", `f.csv:1: layerprofile: invalid layer profile: column "speed"`},
		"missing":  {"layer,name\n", "column parameters is missing"},
		"number":   {head + "0,a,x,64,x,1,1,0.5,1,0.1,100\n", `f.csv:2: layerprofile: invalid layer profile: parameters is "x"`},
		"negative": {head + "0,a,1,64,x,1,1,-1,1,0.1,100\n", "forward_seconds"},
		"tensor":   {head + "0,a,1,64,x,0,1,1,1,0.1,100\n", "tensor"},
		"gap":      {head + "1,a,1,64,x,1,1,1,1,0.1,100\n", "layer 0 is missing"},
		"range":    {head + "3-1,a,1,64,x,1,1,1,1,0.1,100\n", "range"},
		"twice":    {head + "0,a,1,64,x,1,1,1,1,0.1,100\n0,a,1,64,x,1,1,1,1,0.1,100\n", "micro-batch 1 is given twice"},
		"differs":  {head + "0,a,1,64,x,1,1,1,1,0.1,100\n0,a,2,64,x,1,2,1,1,0.1,100\n", "an earlier line says"},
		"header":   {"layer,name,name\n", "column name is given twice"},
		"free":     {head + "0,a,1,64,x,1,1,0,0,0.1,100\n0,a,1,64,x,1,4,1,1,0.1,100\n0,a,1,64,x,2,1,1,1,0.1,100\n", "every time of the smallest micro-batch on x, tensor 1 is 0"},
		"device":   {head + "0,a,1,64,,1,1,1,1,0.1,100\n", "want a device"},
	} {
		if _, err := Read(strings.NewReader(c.text), "f.csv"); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add(small)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Read(strings.NewReader(text), "f.csv")
		if err != nil {
			return
		}
		for _, l := range p.Layers {
			for _, r := range l.Runs {
				if err := r.check(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
