package forward

import (
	"errors"
	"io"
	"os"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/badinput"
)

// beginLog writes the log so far under a temporary name, and renames it. The log goes on in the file.
func beginLog(path string, header []byte, blocks [][]byte) (*os.File, error) {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return nil, badinput.Wrap(err)
	}
	for _, b := range append([][]byte{header}, blocks...) {
		if _, err := f.Write(b); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), os.Rename(path+".tmp", path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openLog opens a log.
func openLog(path string) (*forward.LogReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cli.FileError(err)
	}
	l, err := forward.NewLogReader(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, badinput.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// readLog reads a log that is to be continued. Its last block may be incomplete.
func readLog(path string) (*forward.LogReader, [][]byte, error) {
	l, err := openLog(path)
	if err != nil {
		return nil, nil, err
	}
	var blocks [][]byte
	for {
		b, err := l.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, forward.ErrTruncated) {
			return l, blocks, nil
		}
		if err != nil {
			return nil, nil, badinput.Errorf("%s: %w", path, err)
		}
		blocks = append(blocks, b)
	}
}
