package trial

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/google/renameio/v2"

	"evenkeel/bucket/stepcost"
)

// ErrExists is an error of OpenTable: the file has trials already, and they are not to be
// gone on with.
var ErrExists = fmt.Errorf("trial: the table is there already: %w", os.ErrExist)

// TableFile is a cost table that is written trial by trial, so that none is lost when
// the profile is interrupted.
type TableFile struct {
	// Done are the trials that stood in the file when it was opened.
	Done  stepcost.Table
	path  string
	file  *os.File
	count int
}

// OpenTable makes a table, or, with resume, goes on with the one that is there: a last
// line that was cut short is left out.
func OpenTable(path string, resume bool) (*TableFile, error) {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(data) == 0:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return nil, err
		}
		return &TableFile{path: path, file: f}, nil
	case err != nil:
		return nil, err
	case !resume:
		return nil, ErrExists
	}
	t := &TableFile{path: path}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if bytes.Count(whole, []byte("\n")) > 1 {
		if t.Done, err = stepcost.ReadTable(bytes.NewReader(whole), path); err != nil {
			return nil, err
		}
	} else {
		whole = nil
	}
	if err := os.WriteFile(path, whole, 0o644); err != nil {
		return nil, err
	}
	t.count = len(t.Done)
	t.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return t, err
}

// Add writes a trial through to the disk, before the first the header.
func (t *TableFile) Add(r stepcost.Trial) error {
	line := r.Row() + "\n"
	if t.count == 0 {
		line = stepcost.Table{r}.Header() + "\n" + line
	}
	t.count++
	_, err := t.file.WriteString(line)
	return errors.Join(err, t.file.Sync())
}

// Close keeps the trials so far, in the order in which they ran. A file without any is
// removed.
func (t *TableFile) Close() error {
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	if t.file = nil; t.count == 0 {
		err = errors.Join(err, os.Remove(t.path))
	}
	return err
}

// Discard closes the file and removes it, unless trials stood in it when it was opened.
func (t *TableFile) Discard() error {
	if len(t.Done) > 0 {
		return t.Close()
	}
	t.count = 0
	return t.Close()
}

// Finish replaces the file by the whole table, in the table's order, and closes it.
func (t *TableFile) Finish(all stepcost.Table) error {
	err := t.file.Close()
	if t.file = nil; err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintln(&b, all.Header())
	for _, r := range all {
		fmt.Fprintln(&b, r.Row())
	}
	return renameio.WriteFile(t.path, b.Bytes(), 0o644, renameio.WithExistingPermissions())
}
