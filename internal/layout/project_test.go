package layout

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lines returns those of a file, without blanks around them.
func lines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, strings.TrimSpace(s.Text()))
	}
	return out
}

// The two commands that a newcomer is given are those that are kept working: CI runs
// the second and the scripts of cmd/evenkeel the first.
func TestReadmeCommands(t *testing.T) {
	readme := lines(t, "README.md")
	const run, test = "go run ./cmd/evenkeel run", "go test ./..."
	for _, command := range []string{run, test} {
		if !slices.Contains(readme, command) {
			t.Errorf("README.md has no line %q", command)
		}
	}
	if !slices.ContainsFunc(lines(t, ".ci/run"), func(l string) bool { return strings.HasSuffix(l, test) }) {
		t.Errorf(".ci/run does not call the README's test command, %q", test)
	}
}

// The README is one screen. Words are what stands between blanks, code blocks, links and
// the bars of tables included.
func TestReadmeLength(t *testing.T) {
	const most = 450
	if n := len(strings.Fields(read(t, "README.md"))); n > most {
		t.Errorf("README.md has %d words, at most %d: what it leaves out belongs on a page of docs", n, most)
	}
}

func TestLicence(t *testing.T) {
	if text := lines(t, "LICENSE"); !slices.Contains(text, "Apache License") || len(text) < 200 {
		t.Error("LICENSE is not the whole Apache License")
	}
}
