package planner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gotest.tools/v3/golden"

	"evenkeel/planner/costmodel"
)

// example is a plan of two stages on two classes, with everything a plan can say.
func example() *Plan {
	return &Plan{Version: Version, Model: "gpt-6", GlobalBatch: 32, MicroBatch: 8, Stages: []Stage{
		{From: 0, To: 4, Groups: []Group{{Devices{"a100", 0, 4}, 2, []int{3, 3}}, {Devices{"t4", 4, 2}, 1, []int{1, 1}}},
			Strategies: []Strategy{{0, 1, 0, Full, false, false}, {1, 4, 0, Optimizer, true, false}}},
		{From: 4, To: 6, Groups: []Group{{Devices{"t4", 0, 4}, 1, []int{2, 2, 2, 2}}},
			Strategies: []Strategy{{4, 5, 2, Replicated, false, false}, {5, 6, 0, Replicated, false, false}}},
	}, Unused: []Devices{{"t4", 6, 2}}, Predicted: &Prediction{Seconds: 1.5, Simulated: 1.25, Idle: 0.125, Stages: []StageCost{
		{Forward: 0.1, Backward: 0.2, Memory: []costmodel.Usage{usage("a100", 1<<30, 40<<30), usage("t4", 1<<30, 16<<30)}},
		{Forward: 0.09, Backward: 0.18, Sync: 0.05, Memory: []costmodel.Usage{usage("t4", 1<<31, 16<<30)}},
	}}}
}

func usage(device string, states, limit float64) costmodel.Usage {
	return costmodel.Usage{Device: device, States: states, Activations: 1 << 29, Working: 1 << 20, Limit: limit}
}

func encode(t testing.TB, p *Plan) []byte {
	t.Helper()
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPlanFile(t *testing.T) {
	golden.AssertBytes(t, encode(t, example()), "plan.golden.json")
	path := filepath.Join(t.TempDir(), "plan.json")
	for range 2 { // the second replaces the first
		if err := WritePlan(path, example()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(example(), got); d != "" {
		t.Fatal(d)
	}
	if _, err := LoadPlan(filepath.Dir(path)); !errors.Is(err, ErrPlan) {
		t.Error(err)
	}
	if _, err := LoadPlan(path + ".no"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// What the search finds comes back from a file as it was, and its schema takes it.
func TestFoundPlansRoundTrip(t *testing.T) {
	schema := compiled(t)
	found := 0
	for seed := range uint64(30) {
		job := roomy(t, seed, 1, 8)
		if job == nil {
			continue
		}
		r, err := job.Search(t.Context(), SearchOptions{})
		if err != nil {
			continue
		}
		found++
		text := encode(t, r.Plan)
		got, err := ReadPlan(bytes.NewReader(text), "plan")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r.Plan, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
		if !bytes.Equal(text, encode(t, got)) {
			t.Fatal("other bytes")
		}
		if err := valid(t, schema, text); err != nil {
			t.Fatal(err)
		}
	}
	if found < 15 {
		t.Fatalf("only %d plans", found)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(PlanSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("plan.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// What a schema can refuse is refused by it and by the reader alike.
func TestPlanSchema(t *testing.T) {
	schema, good := compiled(t), encode(t, example())
	if err := valid(t, schema, good); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"version": 1`, `"version": 2`}, {`"model": "gpt-6"`, `"modell": "gpt-6"`}, {`"global_batch": 32`, `"global_batch": 0`},
		{`"micro_batch": 8,`, ``}, {`"device": "a100",`, `"device": "",`}, {`"first": 0`, `"first": -1`}, {`"count": 4`, `"count": 0`},
		{`"tensor": 2`, `"tensor": 0`}, {`"sharding": "full"`, `"sharding": "half"`}, {`"checkpoint": true`, `"checkpoint": 1`},
		{`"idle": 0.125`, `"idle": 1.5`}, {`"forward": 0.1`, `"forward": -1`}, {`"limit"`, `"limits"`}, {`"states": 1073741824`, `"states": -1`},
		{`"gpt-6"`, `"` + strings.Repeat("x", 254) + `"`},
	} {
		text := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(text, good) {
			t.Fatalf("%s is not in the file", change[0])
		}
		if valid(t, schema, text) == nil {
			t.Errorf("the schema takes %s for %s", change[1], change[0])
		}
		if _, err := ReadPlan(bytes.NewReader(text), "p"); !errors.Is(err, ErrPlan) {
			t.Errorf("ReadPlan takes %s for %s: %v", change[1], change[0], err)
		}
	}
}

func TestReadPlanErrors(t *testing.T) {
	good := string(encode(t, example()))
	for _, c := range []struct{ old, with, want string }{
		{`"model": "gpt-6",`, `"modell": "gpt-6",`, `my.json: planner: invalid plan: unknown field "modell"`},
		{`"first": 0,`, `"first": "0",`, `my.json: line 13: planner: invalid plan: stages.groups.first: is a JSON string; want int`},
		{`"global_batch": 32`, `"global_batch": 33`, `my.json: planner: invalid plan: global_batch: is 33 with micro_batch 8`},
		{`"from": 4`, `"from": 3`, `my.json: planner: invalid plan: stages[1]: has layers 3 to 6; must begin with layer 4`},
		{`"seconds": 1.5`, `"precision": "fp16", "seconds": 1.5`, `my.json: planner: invalid plan: predicted: precision is "fp16" and overlap ""; want mixed, bf16 or fp32`},
		{`"seconds": 1.5`, `"overlap": "yes", "seconds": 1.5`, `my.json: planner: invalid plan: predicted: precision is "" and overlap "yes"`},
		{`"t4"`, `"t\n4"`, `my.json: planner: invalid plan: stages[0].groups[1].device: is "t\n4"; must be printable`},
		{`"gpt-6"`, `"gpt\u0000"`, `my.json: planner: invalid plan: model: is "gpt\x00"`},
		{`"t4"`, `"a100"`, `my.json: planner: invalid plan: stages[0].groups[1].device: is "a100", as in groups[0]; a stage has one group of a class: join the two`},
		{good[len(good)-40:], ``, `planner: invalid plan: the file ends too early`},
		{good, ``, `my.json: planner: invalid plan: the file ends too early`},
		{good, good + "x", `my.json: planner: invalid plan: more text after the object`},
		{`"global_batch": 32,`, `"global_batch": 2147483648,`, `must be at most 1073741824`},
	} {
		text := strings.Replace(good, c.old, c.with, 1)
		if text == good {
			t.Fatalf("%s is not in the file", c.old)
		}
		if _, err := ReadPlan(strings.NewReader(text), "my.json"); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.with, err, c.want)
		}
	}
	many := example()
	for i := range maxGroups {
		many.Unused = append(many.Unused, Devices{"more", i, 1})
	}
	few := example()
	few.Predicted.Stages = few.Predicted.Stages[:1]
	for _, p := range []*Plan{many, few} {
		if _, err := ReadPlan(bytes.NewReader(encode(t, p)), "p"); !errors.Is(err, ErrPlan) {
			t.Error(err)
		}
	}
	none, empty := example(), example()
	none.Stages, empty.Stages[1].Groups = nil, nil
	for p, want := range map[*Plan]string{none: "stages: is empty; a plan has", empty: "stages[1].groups: is empty; a stage has"} {
		if err := p.Validate(0); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add(encode(f, example()))
	f.Add([]byte(`{"version":1,"global_batch":1,"micro_batch":1,"stages":[{"from":0,"to":1,"groups":[{"device":"d","count":1,"tensor":1,"micro_batches":[1]}],"strategies":[{"from":0,"to":1,"sharding":"none"}]}]}`))
	f.Add([]byte(`{"stages":[null],"predicted":{"stages":[{"memory":null}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPlan(bytes.NewReader(data), "p")
		if err != nil {
			if !errors.Is(err, ErrPlan) {
				t.Fatal(err)
			}
			return
		}
		again, err := ReadPlan(bytes.NewReader(encode(t, p)), "p")
		if err != nil || !cmp.Equal(p, again, cmpopts.EquateEmpty()) {
			t.Fatalf("%v\n%s", err, cmp.Diff(p, again))
		}
	})
}

// The example of the format page is a plan.
func TestPlanPage(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/formats/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	p, err := ReadPlan(strings.NewReader(text), "docs/reference/formats/plan.md")
	if err != nil || len(p.Stages) != 2 {
		t.Fatal(p, err)
	}
	if err := valid(t, compiled(t), []byte(text)); err != nil {
		t.Error(err)
	}
}
