package cluster

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxProblems is how many faults of one file are listed.
const maxProblems = 20

// problem is one fault, with the path of its field.
type problem struct {
	path, text string
	line       int // 0: the line of the field
}

type problems []problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, problem{path: path, text: fmt.Sprintf(format, args...)})
}

// within records a value outside least..most, NaN included.
func (p *problems) within(path string, v, least, most float64) {
	if math.IsNaN(v) || v < least || v > most {
		p.add(path, "is %s; it must lie in %s..%s", number(v), number(least), number(most))
	}
}

// number writes v without an exponent where that stays readable.
func number(v float64) string {
	if a := math.Abs(v); a >= 1e-4 && a < 1e12 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// join is the problems as one error, nil if there are none.
func (p problems) join() error {
	errs := make([]error, len(p))
	for i, q := range p {
		errs[i] = fmt.Errorf("%s %s", q.path, q.text)
	}
	return errors.Join(errs...)
}

// error is join for a file: in the order of the lines, each with its line quoted.
func (p problems) error(name string, source []byte, lines map[string]int) error {
	for i := range p {
		if p[i].line == 0 {
			p[i].line = lineOf(lines, p[i].path)
		}
	}
	slices.SortStableFunc(p, func(a, b problem) int { return a.line - b.line })
	text := strings.Split(string(source), "\n")
	var errs []error
	for _, q := range p[:min(len(p), maxProblems)] {
		where, field, quote := name, "", ""
		if q.line > 0 && q.line <= len(text) {
			line := strings.TrimSuffix(text[q.line-1], "\r")
			if len(line) > 120 {
				line = line[:120] + "..."
			}
			where, quote = fmt.Sprintf("%s:%d", name, q.line), fmt.Sprintf("\n  %d | %s", q.line, strings.ToValidUTF8(line, "?"))
		}
		if q.path != "" {
			field = q.path + ": "
		}
		errs = append(errs, fmt.Errorf("%s: %w: %s%s%s", where, ErrFile, field, q.text, quote))
	}
	if more := len(p) - maxProblems; more > 0 {
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
