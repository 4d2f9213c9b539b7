// Package results writes what an experiment printed into its section of a Markdown file.
package results

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/renameio/v2"
)

// Replace puts text between the lines "<!-- name -->" and "<!-- end name -->" of the
// file at path. It is an error if the file has no such section.
func Replace(path, name, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end "+name+" -->"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("results: %s has no section %s", path, name)
	}
	if err := renameio.WriteFile(path, []byte(before+begin+text+end+after), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}
