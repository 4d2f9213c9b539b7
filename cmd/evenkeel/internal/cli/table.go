package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Column is a table's column; numbers stand to the right.
type Column struct {
	Title string
	right bool
}

// Left is a column of text.
func Left(title string) Column { return Column{Title: title} }

// Right is a column of numbers.
func Right(title string) Column { return Column{Title: title, right: true} }

// Table aligns rows under their titles and returns lines without line ends.
func Table(columns []Column, rows [][]string) []string {
	widths := make([]int, len(columns))
	titles := make([]string, len(columns))
	for k, c := range columns {
		titles[k], widths[k] = c.Title, Visible(c.Title)
		for _, r := range rows {
			widths[k] = max(widths[k], Visible(r[k]))
		}
	}
	lines := make([]string, 0, len(rows)+1)
	for _, r := range append([][]string{titles}, rows...) {
		var b strings.Builder
		for k, cell := range r {
			pad := strings.Repeat(" ", widths[k]-Visible(cell))
			if columns[k].right {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
			b.WriteString("  ")
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// PrintLines writes lines, each with a line end.
func PrintLines(w io.Writer, lines []string) error {
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// Visible is the width of s on a terminal, without colour codes.
func Visible(s string) int {
	n := 0
	for {
		before, after, colour := strings.Cut(s, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !colour {
			return n
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

// Seconds writes a time with three significant digits.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return Rate(s) + " s"
	case s == 0:
		return "0 s"
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g µs", 1e6*s)
}

// Rate writes a number with three significant digits.
func Rate(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Percent writes a share as a percentage.
func Percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// Count writes a number with its noun: "1 node", "2 nodes".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Ratio is text, or "" where the value is missing.
func Ratio(v float64, text string) string {
	if v == 0 {
		return ""
	}
	return text
}
