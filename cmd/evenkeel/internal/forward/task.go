package forward

import (
	"encoding/json"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// taskOf builds the data and the network that the header of a log or run describes. Each processor does so itself; how
// to train is in the header.
func taskOf(h forward.Header, dataFile string) (*task.Setup, error) {
	var t task.Task
	if err := json.Unmarshal(h.Task, &t); err != nil {
		return nil, badinput.Errorf("the header's task: %w", err)
	}
	if dataFile != "" {
		t.Data = dataFile
	}
	w, err := t.Build()
	return w, cli.FileError(err)
}
