package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// missingFile says of a file that is not there what else is: a job of several ranks has a set of files under names of their own.
func missingFile(path string) error {
	there, missing := ranksOf(path)
	switch {
	case len(there) == 0:
		return badinput.Errorf("%s: no such file", path)
	case len(missing) > 0:
		return badinput.Errorf("%s: no such file; it is a set of %d files, of which %s is missing (there: %s)", path, len(there)+len(missing), strings.Join(missing, " "), strings.Join(there, " "))
	}
	return badinput.Errorf("%s: no such file; it is a set of %d files: give %s", path, len(there), strings.Join(there, " "))
}

// rankName is the end of the name of one rank's file, as evenkeel.checkpoint writes it: generation, rank, ranks.
var rankName = regexp.MustCompile(`^\.g(\d{1,9})\.(\d{1,9})of(\d{1,6})$`)

// ranksOf are the files of a job's newest set, by rank, and those of it that are missing; none where there is no set.
func ranksOf(path string) (there, missing []string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, nil
	}
	newest, ranks := -1, 0
	for _, e := range entries {
		end, ok := strings.CutPrefix(e.Name(), filepath.Base(path))
		if m := rankName.FindStringSubmatch(end); ok && m != nil {
			g, _ := strconv.Atoi(m[1]) // digits, few enough
			n, _ := strconv.Atoi(m[3])
			if g > newest {
				newest, ranks = g, n
			}
		}
	}
	for r := range ranks {
		p := fmt.Sprintf("%s.g%d.%dof%d", path, newest, r, ranks)
		if _, err := os.Lstat(p); err == nil {
			there = append(there, p)
		} else {
			missing = append(missing, p)
		}
	}
	return there, missing
}

// setError says of a set of which too few files were given how many it has.
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
		return badinput.Errorf("%s: of a set of %d files, not of %d: give all of them", c.Files[0], ranks, len(c.Files))
	}
	return err
}
