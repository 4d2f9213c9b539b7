package main

import (
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// TestFirstDifference: the mutant is found although gremlins formats the file.
func TestFirstDifference(t *testing.T) {
	const text = "package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1  // one\n\treturn a+x  <  b\n}\n"
	cases := []struct {
		mutated      string
		line, column int
		with         token.Token
		found        bool
	}{
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a+x <= b\n}\n", 6, 14, token.LEQ, true},
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a-x < b\n}\n", 6, 10, token.SUB, true},
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a+x < b\n}\n", 0, 0, 0, false},
	}
	for _, c := range cases {
		line, column, with, found := firstDifference([]byte(text), []byte(c.mutated))
		if line != c.line || column != c.column || with != c.with || found != c.found {
			t.Errorf("got %d:%d %v %v, want %d:%d %v %v in\n%s", line, column, with, found, c.line, c.column, c.with, c.found, c.mutated)
		}
	}
}

// TestMarkWaited: of two mutants at one place the one that waited is marked.
func TestMarkWaited(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("package p\n\nvar x = 1 < 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]string{
		"a.go:3:11:<=": {timedOut, killed, killed},
		"a.go:3:11:>=": {killed, timedOut, killed},
		"a.go:3:12:>=": {killed, killed, timedOut},
	} {
		of := map[string][]mutant{"a.go": {{3, 11, "CONDITIONALS_BOUNDARY", killed}, {3, 11, "CONDITIONALS_NEGATION", killed}, {3, 12, "ARITHMETIC_BASE", killed}}}
		if err := markWaited(dir, of, id); err != nil {
			t.Fatal(err)
		}
		for i, m := range of["a.go"] {
			if m.Status != want[i] {
				t.Errorf("%s: %+v", id, of)
			}
		}
	}
	if err := markWaited(dir, nil, "a.go"); err == nil {
		t.Error("no place was taken")
	}
}

// TestTargets: the files that decide are where targets.yaml says.
func TestTargets(t *testing.T) {
	t.Chdir("../..")
	targets, err := readTargets()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := choose(targets, []string{"nowhere"}); err == nil {
		t.Error("a name that is no target was taken")
	}
	chosen, err := choose(targets, []string{"cluster/allocate.go", "./forward"})
	if err != nil {
		t.Fatal(err)
	}
	if len(chosen) != 2 || len(chosen[0].Files) != 1 || len(chosen[1].Files) < 2 {
		t.Errorf("chose %+v", chosen)
	}
	for _, c := range targets {
		for _, f := range c.Files {
			if _, err := read(c.Package, f); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCoverBetween: conditions of cases, which lie between blocks, count as covered, and what no test reaches does not.
func TestCoverBetween(t *testing.T) {
	path := filepath.Join(t.TempDir(), "coverage")
	const before = "mode: set\nm/p/a.go:3.20,4.9 1 1\nm/p/a.go:5.14,6.11 1 0\nm/p/a.go:6.11,7.2 1 1\n"
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := coverBetween(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = before + "m/p/a.go:1.1,3.20 0 1\nm/p/a.go:4.9,5.14 0 1\nm/p/a.go:7.2,1073741824.1 0 1\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
