package forward

import (
	"encoding/json"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// taskOf is what every processor must make for itself, in the header of logs and runs: the data and the network of a
// task; how to train stands in the header itself.
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
