package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/cover"
)

// coverBetween adds to a coverage profile that what lies between its blocks is covered. Go counts blocks of
// statements; the conditions of a switch's cases and package-level constants lie in none, and gremlins would not try
// mutants there. Blocks that no test reaches stay so.
func coverBetween(path string) error {
	profiles, err := cover.ParseProfiles(path)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range profiles {
		line, column := 1, 1
		gap := func(toLine, toColumn int) {
			if line < toLine || line == toLine && column < toColumn {
				fmt.Fprintf(&b, "%s:%d.%d,%d.%d 0 1\n", p.FileName, line, column, toLine, toColumn)
			}
		}
		for _, block := range p.Blocks {
			gap(block.StartLine, block.StartCol)
			line, column = block.EndLine, block.EndCol
		}
		gap(1<<30, 1)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(b.String()); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
