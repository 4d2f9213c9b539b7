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
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/results/tuner.md")
	if err != nil {
		t.Fatal(err)
	}
	for header, rows := range map[string]map[int]string{
		"| policy | steady | drift | interference | bursts |\n":                               {0: "steady", 3: "short bursts"},
		"| policy | periodic | saves | cascade | hopping | announced | thermal | mixture |\n": {0: "periodic co-tenants", 3: "hopping co-tenants"},
	} {
		_, table, _ := strings.Cut(string(page), header)
		table, _, _ = strings.Cut(table, "\n\n")
		progress, best := map[string][]float64{}, make([]float64, 7)
		for _, m := range regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \|(.*)\|$`).FindAllStringSubmatch(table, -1) {
			for k, cell := range strings.Split(m[2], "|") {
				v, err := strconv.ParseFloat(strings.TrimSpace(strings.Split(cell, ",")[0]), 64)
				if err != nil {
					t.Fatal(err)
				}
				progress[m[1]] = append(progress[m[1]], v)
				if m[1] != "ddqn" && m[1] != "model" && m[1] != "reactive" { // ours
					best[k] = max(best[k], v)
				}
			}
		}
		for k, name := range rows {
			if want := fmt.Sprintf("| %s | %.3f | %.4f | %.4f |\n", name, progress["uniform"][k], best[k], progress["ddqn"][k]); !strings.Contains(string(readme), want) {
				t.Errorf("README.md has no line %q", want)
			}
		}
	}
}
