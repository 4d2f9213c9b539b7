package bucket

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestPlanFollowsSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(PlanSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("plan", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("plan")
	if err != nil {
		t.Fatal(err)
	}
	cost, err := NewCost(tableOf(costA, []int{64, 512}, 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(lognormal(1000, 100, .5, 512), cost, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []bool{false, true} {
		if bad {
			text = bytes.Replace(text, []byte(`"ranks":2`), []byte(`"ranks":0`), 1)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err != nil) != bad {
			t.Errorf("bad %v: %v", bad, err)
		}
	}
}
