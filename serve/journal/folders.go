package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A file that was flushed can be gone after a loss of power if the name of a folder above it was not flushed: POSIX promises no more. The server flushes files,
// and the folder that they are in; not those above, which are made once.

// makeFolder makes a folder, and those above it that are missing, and flushes their names.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := makeFolder(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return flush(above)
}

// flushFolders flushes the names in a folder and in all below.
func flushFolders(dir string) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return flush(path)
	})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// flush flushes the names in a folder.
func flush(dir string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil // one above that others made, who may keep its names from being read
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
