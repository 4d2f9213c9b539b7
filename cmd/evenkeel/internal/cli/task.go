package cli

import (
	"errors"
	"io/fs"

	"github.com/evenkeel/evenkeel/train/data"
	"github.com/evenkeel/evenkeel/train/task"
)

// BuildTask is Build with its errors marked.
func BuildTask(t task.Task) (*task.Work, error) {
	w, err := t.Build()
	if errors.Is(err, task.ErrTask) || errors.Is(err, data.ErrFormat) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, BadInput(err)
	}
	return w, err
}
