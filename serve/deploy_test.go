package serve

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// expressions are those of the alert rules and of the Grafana dashboard, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	all := map[string]string{}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(read("../deploy/prometheus/rules.yaml"), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, r := range rules.Groups[0].Rules {
		page, part, _ := strings.Cut(r.Annotations["runbook"], "#")
		if r.Annotations["summary"] == "" || r.Labels["severity"] == "" || part != strings.ToLower(r.Alert) || !strings.Contains(string(read("../"+page)), "\n## "+r.Alert+"\n") {
			t.Errorf("%s: %+v", r.Alert, r)
		}
		all["alert "+r.Alert] = r.Expr
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Query any }
		}
	}
	if err := json.Unmarshal(read("../deploy/grafana/evenkeel.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, x := range p.Targets {
			all["panel "+p.Title+" "+x.LegendFormat] = x.Expr
		}
	}
	if len(all) < 20 {
		t.Errorf("%d expressions: the files were not read", len(all))
	}
	return all
}

// Alerts and dashboard ask for series, and labels, that /metrics shows; docs/reference/metrics.md names every metric.
func TestDeployedNames(t *testing.T) {
	c, _ := newClient(t, Config{NodeMetrics: true, Journal: openJournal(t, t.TempDir())})
	sizes := c.start("job", "0123456789", 60, 3).Sizes
	for round := range 60 { // until a rank is slow
		body, a := report(sizes, round, 0.1, 0.1, 0.2), answer{}
		body["wait_seconds"] = 60
		c.do("POST", "/v1/jobs/job/reports", body, &a)
		sizes = a.Sizes
	}
	c.do("GET", "/nowhere", nil, nil)
	c.settle("job", 60)
	name := regexp.MustCompile(`\b(evenkeel|process|go)_[a-z_]+\b`)
	label := regexp.MustCompile(`([a-z_]+)=`)
	shown := map[string]map[string]bool{}
	for series := range c.scrape() {
		family, labels, _ := strings.Cut(series, "{")
		if shown[family] == nil {
			shown[family] = map[string]bool{"instance": true} // Prometheus's own
		}
		for _, l := range label.FindAllStringSubmatch(labels, -1) {
			shown[family][l[1]] = true
		}
	}
	asked := regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	by := regexp.MustCompile(`(?:by|on) \(([a-z, ]+)\)`)
	own := regexp.MustCompile(`([a-z]+)=~?"`)
	for where, expr := range expressions(t) {
		families := name.FindAllString(expr, -1)
		if len(families) == 0 || strings.Count(expr, "(") != strings.Count(expr, ")") {
			t.Errorf("%s: %s", where, expr)
		}
		for _, f := range families {
			if shown[f] == nil {
				t.Errorf("%s asks for %s, which there is not", where, f)
			}
			for _, list := range by.FindAllStringSubmatch(expr, -1) {
				for l := range strings.SplitSeq(list[1], ", ") {
					if !shown[f][l] && f != "evenkeel_ranks" {
						t.Errorf("%s groups by %s, which %s has not", where, l, f)
					}
				}
			}
		}
		for _, x := range asked.FindAllStringSubmatch(expr, -1) {
			for _, l := range own.FindAllStringSubmatch(x[2], -1) {
				if !shown[x[1]][l[1]] {
					t.Errorf("%s asks for the label %s of %s", where, l[1], x[1])
				}
			}
		}
	}
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for family := range shown {
		family = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(family, "_bucket"), "_count"), "_sum")
		if strings.HasPrefix(family, "evenkeel_") && !strings.Contains(string(page), "`"+family) {
			t.Errorf("%s is not on the page of metrics", family)
		}
	}
	for _, f := range name.FindAllString(string(page), -1) {
		if shown[f] == nil && shown[f+"_bucket"] == nil && f != "evenkeel_node_slow" { // of slow ranks alone: TestSlow
			t.Errorf("the page names %s, which there is not", f)
		}
	}
}
