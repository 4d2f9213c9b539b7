package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The README's table has the figures of the results: of equal sizes, of the best rule, and of the policy.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile("../RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(results), "<!-- heldout-all -->")
	section, _, _ = strings.Cut(section, "<!-- end heldout-all -->")
	row := regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([0-9.]+) \|`)
	for scenario, name := range map[string]string{"steady": "steady", "interference": "long interference", "bursts": "short bursts"} {
		_, table, _ := strings.Cut(section, "### "+scenario+"\n")
		table, _, _ = strings.Cut(table, "\n###")
		progress, best := map[string]float64{}, 0.0
		for _, m := range row.FindAllStringSubmatch(table, -1) {
			if progress[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
				t.Fatal(err)
			}
			switch m[1] {
			case "ddqn", "model", "model-losses", "modelfree": // ours, and a learned one
			default:
				best = max(best, progress[m[1]])
			}
		}
		if want := fmt.Sprintf("| %s | %.3f | %.4f | %.4f |\n", name, progress["uniform"], best, progress["ddqn"]); !strings.Contains(string(readme), want) {
			t.Errorf("README.md has no line %q", want)
		}
	}
}
