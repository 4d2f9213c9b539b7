package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const page = "docs/results/mutation.md"

// report writes the page from what is kept of the targets.
func report(targets []target) error {
	var b, list strings.Builder
	b.WriteString("# Mutation scores\n\n" +
		"How well do the tests check the decision code? Each file was changed in one place at a time (a comparison, a sign, an operator), and the\n" +
		"tests of its package ran on each change. The score is the share of the judged changes that a test noticed. Changes in blocks that no test\n" +
		"reaches, and changes after which the tests wait without an end, are not judged; they are counted separately. An endless loop counts as noticed.\n\n" +
		"```sh\ngo run ./experiments/mutation             # everything\n" +
		"go run ./experiments/mutation cluster     # one package; or one file: cluster/allocate.go\n```\n\n" +
		"The changes are made by [gremlins](https://github.com/go-gremlins/gremlins), pinned in [tools/mutation](../../tools/mutation/go.mod);\n" +
		"the files are those of [targets.yaml](../../experiments/mutation/targets.yaml). A star marks a file that has changed since.\n\n" +
		"| file | decides | mutants | killed | lived | score | not covered | timed out |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	var sum judged
	for _, t := range targets {
		for _, f := range t.Files {
			name := t.Package + "/" + f
			j, err := read(t.Package, f)
			if err != nil {
				return err
			}
			if j == nil {
				fmt.Fprintf(&b, "| %s | %s | not judged yet | | | | | |\n", name, t.What)
				continue
			}
			now, err := version(t.Package, f)
			if err != nil {
				return err
			}
			if now != j.Version {
				name += " *"
			}
			j.row(&b, name, t.What)
			sum.Killed += j.Killed
			sum.Lived += j.Lived
			sum.NotCovered += j.NotCovered
			sum.TimedOut += j.TimedOut
			j.list(&list, t.Package+"/"+f)
		}
	}
	sum.row(&b, "**all**", "")
	b.WriteString("\n## Survivors\n\nWhat no test noticed, with line and column. A note says why no test can: both versions do the same.\n")
	b.WriteString(list.String())
	if err := os.MkdirAll(filepath.Dir(page), 0o755); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(b.String()), 0o644)
}

func (j *judged) row(b *strings.Builder, name, what string) {
	score := "-"
	if n := j.Killed + j.Lived; n > 0 {
		score = fmt.Sprintf("%.0f%%", 100*float64(j.Killed)/float64(n))
	}
	fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %s | %d | %d |\n", name, what, j.Killed+j.Lived+j.NotCovered+j.TimedOut,
		j.Killed, j.Lived, score, j.NotCovered, j.TimedOut)
}

func (j *judged) list(b *strings.Builder, file string) {
	if len(j.Survivors) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n", file)
	for _, s := range j.Survivors {
		fmt.Fprintf(b, "- %d:%d %s, %s: `%s`", s.Line, s.Column, s.Mutation, s.Status, strings.ReplaceAll(s.Code, "`", "'"))
		if s.Note != "" {
			b.WriteString(" (" + s.Note + ")")
		}
		b.WriteString("\n")
	}
}
