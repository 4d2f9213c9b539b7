package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OpenOrCreateSet is OpenSet, or CreateSet if none of the files exists. If a creation was interrupted, so that
// some are there and no checkpoint was ever committed to any, it starts over. It is an error if some are missing and
// others hold checkpoints (ErrCorrupt): a rank's part is lost.
func OpenOrCreateSet(paths []string, arrays []Array, o Options) (*Set, error) {
	var there, missing []string
	for _, p := range paths {
		switch _, err := os.Lstat(p); {
		case err == nil:
			there = append(there, p)
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, p)
		default:
			return nil, err
		}
	}
	if len(missing) == 0 {
		return OpenSet(paths, arrays, o)
	}
	for _, p := range there {
		if err := unused(p, o); err != nil {
			return nil, fmt.Errorf("checkpoint %s is missing, and %w", missing[0], err)
		}
	}
	for _, p := range there {
		if err := os.Remove(p); err != nil {
			return nil, err
		}
	}
	return CreateSet(paths, arrays, o)
}

// unused is an error if a file holds a checkpoint, or may have held one.
func unused(path string, o Options) error {
	f, err := Open(path, nil, o) // with the lock: no other process writes it
	if err != nil {
		return err
	}
	for _, s := range f.Slots() {
		if s.Sequence > 0 || s.Fault != "" {
			return errors.Join(fmt.Errorf("%s, of the same set, holds checkpoints; bring the missing file back: %w", path, ErrCorrupt), f.Close())
		}
	}
	return f.Close()
}
