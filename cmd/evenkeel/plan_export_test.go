package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whoever runs the commands of the guide gets what it shows.
func TestPlanExportGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/plan-export.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := filepath.Abs(pictures)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for i, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(guide, -1) {
		if err := os.WriteFile([]string{"opt.json", "uneven.json"}[i], block[1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		for shown := range strings.SplitSeq(block[1], "$ ") {
			if shown == "" {
				continue
			}
			line, want, _ := strings.Cut(shown, "\n")
			commands++
			if got := output(t, strings.Fields(line)); !asShown(plain(want), got) {
				t.Errorf("%s\n%s\nthe guide shows\n%s", line, got, plain(want))
			}
		}
	}
	if commands < 6 {
		t.Errorf("only %d commands", commands)
	}
	samePicture(t, "plan.svg", filepath.Join(shown, "plan.svg"))
}

// asShown reports whether a guide's text is what was printed; a line of three dots stands for any lines.
func asShown(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), regexp.QuoteMeta("\n...\n"), "\n(?s:.*)\n")
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

// output is what a command line prints.
func output(t *testing.T, words []string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if words[0] == "evenkeel" {
		obey(words[1:], out, out)
	} else {
		c := exec.CommandContext(t.Context(), words[0], words[1:]...)
		c.Stdout, c.Stderr = out, out
		if err := c.Run(); err != nil {
			t.Skip(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return plain(string(text))
}

// plain leaves out warnings, which begin with the time of day.
func plain(text string) string {
	var keep []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "WRN ") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}
