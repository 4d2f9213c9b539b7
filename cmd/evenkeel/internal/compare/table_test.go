package compare

import (
	"strings"
	"testing"

	"evenkeel/lab/evaluation"
)

// The legend explains the columns and rows that a table has, and no others.
func TestLegend(t *testing.T) {
	ddqn := evaluation.Result{Policy: "ddqn", Ends: "all in", Progress: 1}
	oracle := evaluation.Result{Policy: "oracle", Ends: "all in", Bound: true, Progress: 1}
	uniform := evaluation.Result{Policy: "uniform", Ends: "all in", Progress: 0.5}
	timed := evaluation.Result{Policy: "anytime", Ends: "deadline", Progress: 1}
	for _, x := range []struct {
		results []evaluation.Result
		want    string
	}{
		{[]evaluation.Result{ddqn}, "rounds progress"},
		{[]evaluation.Result{ddqn, oracle}, "rounds progress gains (bound)"},
		{[]evaluation.Result{ddqn, uniform, oracle}, "rounds progress gains * (bound)"},
		{[]evaluation.Result{ddqn, timed}, "rounds progress gains samples *"},
	} {
		var words []string
		for _, l := range legend(x.results) {
			words = append(words, strings.Fields(l)[0])
		}
		if got := strings.Join(words, " "); got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
	if text := strings.Join(legend([]evaluation.Result{ddqn, oracle}), "\n"); strings.Contains(text, "upper bound") {
		t.Error(text)
	}
}

// The figure says what its axis is, and the oracle is its zero line.
func TestComparisonFigure(t *testing.T) {
	f := comparisonFigure([]evaluation.Result{
		{Policy: "ddqn", Scenario: "drift", Progress: 1.01, Low: 1, High: 1.02}, {Policy: "uniform", Scenario: "drift", Progress: 0.4, Low: 0.4, High: 0.4}, {Policy: "oracle", Scenario: "drift", Bound: true, Progress: 1},
	})
	p := f.Panels[0]
	if p.YLabel != "over the oracle, %" || p.Zero != "state oracle" || p.Title != "drift, \u2193: cut off" || len(p.Categories) != 2 || !strings.HasPrefix(f.Title, "Progress over the state oracle's: ") {
		t.Errorf("%q: %+v", f.Title, p)
	}
}
