package names

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// plain is the definition: the cheapest way to spell b from a.
func plain(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	change := plain(a[1:], b[1:])
	if a[0] != b[0] {
		change++
	}
	return min(change, plain(a[1:], b)+1, plain(a, b[1:])+1)
}

func TestDistanceEqualsDefinition(t *testing.T) {
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if got, want := Distance(a, b), plain(a, b); got != want {
			t.Fatalf("Distance(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

func TestNearest(t *testing.T) {
	known := []string{"steady", "drift", "bursts"}
	for name, want := range map[string]string{"stedy": "steady", "Bursts": "bursts", "drift": "drift"} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("Nearest of nothing = %q", got)
	}
	if got := Nearest(strings.Repeat("x", 1<<20), known); got == "" {
		t.Error("a long name has no nearest")
	}
}

func TestUnknown(t *testing.T) {
	known := [][]string{{"json", "schema"}, {"csv", "table", "ds"}}
	for name, want := range map[string]string{
		"Jsn":                   `"Jsn"; did you mean json? (known: json, csv)`,
		"shema":                 `"shema"; did you mean json? (known: json, csv)`,
		"tables":                `"tables"; did you mean csv? (known: json, csv)`,
		"cvs":                   `"cvs"; did you mean csv? (known: json, csv)`, // two letters apart
		"oops":                  `"oops" (known: json, csv)`,
		"xy":                    `"xy" (known: json, csv)`, // as far from ds as ds is long
		strings.Repeat("x", 50): `"` + strings.Repeat("x", 40) + `" (known: json, csv)`,
	} {
		if got := Unknown(name, known); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
