// Package names finds what somebody who mistyped a name may have meant.
// See the Example.
package names

import (
	"fmt"
	"math"
	"strings"
)

// longest is the length up to which a mistyped name is looked at: it is user input.
const longest = 64

// Distance is the Levenshtein distance in bytes. Of a, only the first 64 bytes count.
func Distance(a, b string) int {
	a = a[:min(len(a), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Nearest is the first of the known names at the smallest distance, "" if there are none.
func Nearest(name string, known []string) string {
	best, least := "", math.MaxInt
	for _, k := range known {
		if d := Distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// Unknown describes a name that a list has not: quoted, the name that was probably meant, and all names. The first name
// of an entry is its own, the others are what people type for it.
func Unknown(name string, known [][]string) string {
	all, nearest, least := make([]string, len(known)), "", 3
	for i, entry := range known {
		all[i] = entry[0]
		for _, k := range entry {
			if d := Distance(strings.ToLower(name), k); d < min(least, len(k)) {
				nearest, least = entry[0], d
			}
		}
	}
	hint := ""
	if nearest != "" {
		hint = "; did you mean " + nearest + "?"
	}
	return fmt.Sprintf("%.40q%s (known: %s)", name, hint, strings.Join(all, ", "))
}
