package clusterfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
)

// maxFaults is how many faults of one file are listed.
const maxFaults = 20

// fileError returns the faults as one error, in the order of the lines, each with its line quoted.
func fileError(faults badinput.Faults, name string, source []byte, lines map[string]int) error {
	for i := range faults {
		faults[i].Line = cmp.Or(faults[i].Line, lineOf(lines, faults[i].Path))
	}
	slices.SortStableFunc(faults, func(a, b badinput.Fault) int { return a.Line - b.Line })
	text := strings.Split(string(source), "\n")
	var errs []error
	for _, q := range faults[:min(len(faults), maxFaults)] {
		where, field, quote := name, "", ""
		if q.Line > 0 && q.Line <= len(text) {
			line := strings.TrimSuffix(text[q.Line-1], "\r")
			if len(line) > 120 {
				line = line[:120] + "..."
			}
			where, quote = fmt.Sprintf("%s:%d", name, q.Line), fmt.Sprintf("\n  %d | %s", q.Line, strings.ToValidUTF8(line, "?"))
		}
		if q.Path != "" {
			field = q.Path + ": "
		}
		errs = append(errs, fmt.Errorf("%s: %w: %s%s%s", where, ErrFile, field, q.Text, quote))
	}
	if more := len(faults) - maxFaults; more > 0 {
		errs = append(errs, fmt.Errorf("%s: %w: and %d more faults", name, ErrFile, more))
	}
	return errors.Join(errs...)
}

// lineOf is the line of a field, or of the nearest enclosing one that is written.
func lineOf(lines map[string]int, path string) int {
	for {
		if n, ok := lines[path]; ok || path == "" {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
}
