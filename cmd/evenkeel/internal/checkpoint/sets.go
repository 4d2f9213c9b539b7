package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// check reports, before any work, a folder where a file should be, and a file that is missing.
func (c *fileArgs) check() error {
	for _, f := range c.Files {
		info, err := os.Stat(f)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return missingFile(f)
		case err != nil:
			return cli.FileError(err)
		case info.IsDir():
			return badinput.Errorf("%s is a folder; name a file", f)
		}
	}
	return nil
}

// missingFile is the error for a file that is not there. A job of several ranks has a set of files instead, whose names
// evenkeel.checkpoint ends in generation, rank and ranks.
func missingFile(path string) error {
	set, _ := filepath.Glob(path + ".g*.*of*") // a path with the signs of a pattern finds none
	if len(set) == 0 {
		return badinput.Errorf("%s: no such file", path)
	}
	return badinput.Errorf("%s: no such file; it is a set with a file for each rank: give those of one generation (there: %s)", path, strings.Join(set, " "))
}

// setError is err or, if too few files of a set were given, an error that says how many it has.
func (c *fileArgs) setError(err error) error {
	if !errors.Is(err, checkpoint.ErrSchema) {
		return cli.FileError(err)
	}
	first, fault := checkpoint.Open(c.Files[0], nil, checkpoint.Options{ReadOnly: true})
	if fault != nil {
		return err
	}
	defer first.Close()
	if ranks := first.Info().Ranks; ranks > len(c.Files) {
		return badinput.Errorf("%s is one of a set of %d files, and %d were given: give all of them", c.Files[0], ranks, len(c.Files))
	}
	return err
}
