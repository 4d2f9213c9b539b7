package cli

import (
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
	"evenkeel/internal/names"
)

// DidYouMean suggests the nearest known name, as the end of a message; "" if none is near:
// a third of the letters may be wrong, up to three.
func DidYouMean(name string, known []string) string {
	near := names.Nearest(name, known)
	if near == "" || names.Distance(name, near) > min(max(len(name)/3, 1), 3) {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", near)
}

// CheckNames reports a name that is unknown, with the nearest known one, or given twice.
func CheckNames(flag string, given, known []string) error {
	for i, name := range given {
		if !slices.Contains(known, name) {
			return badinput.Errorf("%s: unknown %q%s (known: %s)", flag, name, DidYouMean(name, known), strings.Join(known, ", "))
		}
		if slices.Contains(given[:i], name) {
			return badinput.Errorf("%s: %q is given twice", flag, name)
		}
	}
	if len(given) == 0 {
		return badinput.Errorf("%s: name at least one", flag)
	}
	return nil
}

// MaxRounds bounds a run.
const MaxRounds = 1_000_000
