package main

import "testing"

// TestFirstDifference: the mutant is found although gremlins formats the file.
func TestFirstDifference(t *testing.T) {
	const text = "package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1  // one\n\treturn a+x  <  b\n}\n"
	cases := []struct {
		mutated      string
		line, column int
		found        bool
	}{
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a+x <= b\n}\n", 6, 14, true},
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a-x < b\n}\n", 6, 10, true},
		{"package p\n\n// f compares.\nfunc f(a, b int) bool {\n\tx := 1 // one\n\treturn a+x < b\n}\n", 0, 0, false},
	}
	for _, c := range cases {
		line, column, found := firstDifference([]byte(text), []byte(c.mutated))
		if line != c.line || column != c.column || found != c.found {
			t.Errorf("got %d:%d %v, want %d:%d %v in\n%s", line, column, found, c.line, c.column, c.found, c.mutated)
		}
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
