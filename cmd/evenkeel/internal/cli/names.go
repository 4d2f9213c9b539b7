package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/names"
)

// MostEdits is the largest edit distance of a suggested name.
const MostEdits = 3

// CheckNames reports a name that is unknown, with the nearest known one, or given twice.
func CheckNames(flag string, given, known []string) error {
	for i, name := range given {
		if !slices.Contains(known, name) {
			hint := ""
			if near := names.Nearest(name, known); names.Distance(name, near) <= MostEdits {
				hint = fmt.Sprintf("; did you mean %s?", near)
			}
			return badinput.Errorf("%s: unknown %q%s (known: %s)", flag, name, hint, strings.Join(known, ", "))
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
