package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// The command prices plans as the planner's twin does, which was written from the reference alone: flags reach the cost
// model, every number the output.
func TestPlanCheckTwin(t *testing.T) {
	archive, err := txtar.ParseFile("../../planner/testdata/twin.txtar")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	cases := map[string][]string{}
	for _, f := range archive.Files {
		name := path.Dir(f.Name)
		if path.Base(f.Name) == "flags" {
			cases[name] = strings.Fields(string(f.Data))
			continue
		}
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.FromSlash(f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(cases) < 4 {
		t.Fatalf("only %d cases", len(cases))
	}
	for name, flags := range cases {
		plan := filepath.Join(name, "plan.json")
		words := append([]string{"evenkeel", "plan", "check", plan, "--json", "--profile", filepath.Join(name, "layers.csv"), "--cluster", filepath.Join(name, "cluster.yaml")}, flags...)
		want, err := os.ReadFile(plan)
		if err != nil {
			t.Fatal(err)
		}
		got := predicted(t, output(t, words))
		expected := predicted(t, string(want))
		if len(expected) < 20 || len(got) != len(expected) {
			t.Errorf("%s: %d numbers, want %d", name, len(got), len(expected))
		}
		for field, want := range expected {
			if got, ok := got[field]; !ok || !(math.Abs(got-want) <= 1e-9*max(math.Abs(got), math.Abs(want))) {
				t.Errorf("%s: %s is %v, want %v", name, field, got, want)
			}
		}
	}
}

// predicted are the numbers of a plan's prediction, by their place in it.
func predicted(t *testing.T, text string) map[string]float64 {
	t.Helper()
	var plan struct{ Predicted any }
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	numbers := map[string]float64{}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case float64:
			numbers[at] = v
		case []any:
			for i, x := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), x)
			}
		case map[string]any:
			for k, x := range v {
				walk(at+"."+k, x)
			}
		}
	}
	walk("predicted", plan.Predicted)
	return numbers
}
