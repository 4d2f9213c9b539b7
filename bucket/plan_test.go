package bucket_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bucket.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	k := jsonschema.NewCompiler()
	if err := k.AddResource("plan.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := k.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	table, err := stepcost.ReadTable(strings.NewReader(smallTable), "t")
	if err != nil {
		t.Fatal(err)
	}
	c, err := stepcost.New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bucket.Make(bucket.Lengths{1, 5, 9, 3}, c, bucket.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Fatal(err)
	}
	delete(v.(map[string]any), "mixing")
	if schema.Validate(v) == nil {
		t.Fatal("a plan without its mixing passes")
	}
}

const smallTable = stepcost.TableHeader + "\n5,1,0.1,10\n5,2,0.15,20\n10,1,0.16,20\n10,2,,\n"

func TestBadStates(t *testing.T) {
	if _, err := bucket.Make(bucket.Lengths{5}, bucket.A, bucket.Config{}); !badinput.Is(err) {
		t.Error("0 ranks:", err)
	}
	p, err := bucket.Make(bucket.Lognormal(500, 100, .5, 1000), bucket.A, bucket.Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := bucket.State{Version: 1, Data: "other", Ranks: 2, Seed: 1, Epoch: 1, Step: 1}
	if _, _, err := p.Resume(nil, s, slices.Repeat([]float64{1}, 2)); !badinput.Is(err) {
		t.Error("other data:", err)
	}
	s.Data, s.Plan = p.Data, "other"
	if _, _, err := p.Resume(nil, s, slices.Repeat([]float64{1}, 2)); !badinput.Is(err) {
		t.Error("other plan:", err)
	}
}
