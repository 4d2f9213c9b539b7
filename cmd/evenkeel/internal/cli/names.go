package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/names"
)

// MostEdits is how far a suggested name may be from the one given.
const MostEdits = 3

// CheckNames says which of the names is unknown, with the nearest known, or there twice.
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
			return badinput.Errorf("%s: %q is there twice", flag, name)
		}
	}
	if len(given) == 0 {
		return badinput.Errorf("%s: name at least one", flag)
	}
	return nil
}

// MaxRounds bounds a run.
const MaxRounds = 1_000_000
