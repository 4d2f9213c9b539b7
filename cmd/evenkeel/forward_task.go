package main

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train/data"
	"github.com/evenkeel/evenkeel/train/task"
)

// forwardTask is what every processor must make for itself, in the header of logs and runs: the data and the network of a
// task; how to train stands in the header itself.
func forwardTask(h forward.Header, dataFile string) (*task.Work, error) {
	var t task.Task
	if err := json.Unmarshal(h.Task, &t); err != nil {
		return nil, badInputf("the header's task: %w", err)
	}
	if dataFile != "" {
		t.Data = dataFile
	}
	return buildTask(t)
}

// buildTask is Build with its errors marked.
func buildTask(t task.Task) (*task.Work, error) {
	w, err := t.Build()
	if errors.Is(err, task.ErrTask) || errors.Is(err, data.ErrFormat) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, badInput(err)
	}
	return w, err
}
