package forward

import (
	"errors"
	"fmt"
	"os"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/badinput"
)

// replayCmd rebuilds weights.
type replayCmd struct {
	Log    string `arg:"" help:"Log of a run."`
	Init   string `help:"Weights that the run began with, if they came from a file." placeholder:"FILE"`
	Data   string `help:"Path of the run's data file on this machine, to evaluate the weights." placeholder:"FILE"`
	Steps  int    `help:"Rebuild the weights after so many steps, a multiple of 64; default: all." placeholder:"N"`
	Export string `help:"Write the weights as safetensors." placeholder:"FILE"`
	JSON   bool   `name:"json" help:"Print the summary as JSON."`
}

// Help is what --help adds.
func (*replayCmd) Help() string {
	return `A log records a run in a few bytes per step. The weights after every block of 64 steps follow from it and from the run's
first weights, and are compared with the hashes in the log. The data are needed only to evaluate the weights. If the log's end
is damaged or missing, the weights after the last good block are rebuilt, and the exit status is 1.

Examples:

  evenkeel forward replay run.log
  evenkeel forward replay run.log --export weights.safetensors`
}

// replayResult is the --json document.
type replayResult struct {
	Steps        int      `json:"steps"`
	Of           int      `json:"of"`
	WeightsHash  string   `json:"weights_hash"`
	TestAccuracy *float64 `json:"test_accuracy,omitempty"` // where data and network are at hand
	Loss         *float64 `json:"loss,omitempty"`          // the same
	LogBytes     int64    `json:"log_bytes"`
	Damage       string   `json:"damage,omitempty"`
	Export       string   `json:"export,omitempty"`
}

// Run runs the command.
func (c *replayCmd) Run(a *cli.App) error {
	if c.Export != "" {
		if err := cli.CheckFiles([]cli.File{cli.FileFlag("LOG", c.Log), cli.FileFlag("--init", c.Init)}, []cli.File{cli.FileFlag("--export", c.Export)}); err != nil {
			return err
		}
	}
	if c.Steps < 0 {
		return badinput.Errorf("--steps %d: must not be negative", c.Steps)
	}
	r, done, err := replayed(c.Log, c.Init, c.Steps)
	if err != nil {
		return err
	}
	if r.Damage == "" && r.Steps < c.Steps {
		return badinput.Errorf("--steps %d: %s ends after step %d", c.Steps, c.Log, r.Steps)
	}
	if c.Steps > 0 && r.Steps > c.Steps {
		return badinput.Errorf("--steps %d: a log has weights after every %d steps, and after the last", c.Steps, forward.BlockSteps)
	}
	evaluated := "not evaluated: "
	if work, err := taskOf(done.Header, c.Data); err != nil {
		evaluated += err.Error()
	} else if accuracy, loss, err := forward.Evaluate(work.Network, done.Weights, work.Held); err != nil {
		return err
	} else if evaluated = fmt.Sprintf("accuracy  %s\ntest loss      %.4f", cli.Percent(accuracy), loss); true {
		r.TestAccuracy, r.Loss = &accuracy, &loss
	}
	if c.Export != "" {
		if err := exportWeights(c.Export, done.Weights, r.Steps); err != nil {
			return err
		}
		r.Export = c.Export
	}
	if c.JSON {
		err = a.WriteJSON(r)
	} else {
		_, err = fmt.Fprintf(a.Out, "%d of %d steps replayed\nweights        %s\ntest %s\n", r.Steps, r.Of, r.WeightsHash, evaluated)
	}
	if r.Damage != "" {
		err = errors.Join(err, fmt.Errorf("%s: %s; the weights are those after step %d", c.Log, r.Damage, r.Steps))
	}
	return err
}

// replayed rebuilds weights from a log, after so many steps or (0) all. The result reports a damaged end.
func replayed(path, init string, steps int) (*replayResult, *forward.Replica, error) {
	l, err := openLog(path)
	if err != nil {
		return nil, nil, err
	}
	weights, err := initialWeights(l.Header, init)
	if err != nil {
		return nil, nil, badinput.Errorf("%s: %w", path, err)
	}
	r := &replayResult{Of: l.Header.Config.Steps}
	done, err := forward.Replay(l, weights, steps)
	if err != nil {
		r.Damage = err.Error()
	}
	if info, err := os.Stat(path); err == nil {
		r.LogBytes = info.Size()
	}
	r.Steps, r.WeightsHash = done.Steps(), weights.Hash()
	return r, done, nil
}
