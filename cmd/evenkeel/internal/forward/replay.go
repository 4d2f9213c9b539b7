package forward

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/checkpoint"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// replayCmd rebuilds weights.
type replayCmd struct {
	Log    string `arg:"" help:"Log of a run."`
	Export string `help:"Write the weights as safetensors." placeholder:"FILE"`
	JSON   bool   `name:"json" help:"Print the summary as JSON."`
}

// Help is what --help adds.
func (*replayCmd) Help() string {
	return `A log records a run in a few bytes per step. If its end is damaged or missing, the weights after the last good block are
rebuilt, and the exit status is 1.

Examples:

  evenkeel forward replay run.log
  evenkeel forward replay run.log --export weights.safetensors`
}

// replayResult is the --json document.
type replayResult struct {
	Steps        int     `json:"steps"`
	Of           int     `json:"of"`
	WeightsHash  string  `json:"weights_hash"`
	TestAccuracy float64 `json:"test_accuracy"`
	Loss         float64 `json:"loss"`
	LogBytes     int64   `json:"log_bytes"`
	Damage       string  `json:"damage,omitempty"`
	Export       string  `json:"export,omitempty"`
}

// Run runs the command.
func (c *replayCmd) Run(a *cli.App) error {
	if c.Export != "" {
		if err := cli.CheckFiles([]cli.File{cli.FileFlag("LOG", c.Log)}, []cli.File{cli.FileFlag("--export", c.Export)}); err != nil {
			return err
		}
	}
	r, work, weights, err := replayed(c.Log)
	if work == nil {
		return err
	}
	if r.TestAccuracy, r.Loss, err = forward.Evaluate(work.Network, weights, work.Held); err != nil {
		return err
	}
	if c.Export != "" {
		if err := exportWeights(c.Export, work, weights, r.Steps); err != nil {
			return err
		}
		r.Export = c.Export
	}
	if c.JSON {
		err = a.WriteJSON(r)
	} else {
		_, err = fmt.Fprintf(a.Out, "%d of %d steps replayed\nweights        %s\ntest accuracy  %s\ntest loss      %.4f\n", r.Steps, r.Of, r.WeightsHash, cli.Percent(r.TestAccuracy), r.Loss)
	}
	if r.Damage != "" {
		err = errors.Join(err, fmt.Errorf("%s: %s; the weights are those after step %d", c.Log, r.Damage, r.Steps))
	}
	return err
}

// replayed rebuilds weights from a log. The result reports a damaged end.
func replayed(path string) (*replayResult, *task.Setup, *forward.Weights, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, nil, cli.FileError(err)
	}
	defer f.Close()
	l, err := forward.NewLogReader(f)
	if err != nil {
		return nil, nil, nil, badinput.Errorf("%s: %w", path, err)
	}
	work, err := taskOf(l.Header, "")
	if err != nil {
		return nil, nil, nil, err
	}
	weights := forward.NewWeights(work.Network, l.Header.Config.Key)
	r := &replayResult{Of: l.Header.Config.Steps}
	if r.Steps, err = forward.Replay(l, weights); errors.Is(err, forward.ErrWeights) {
		return nil, nil, nil, badinput.Errorf("%s: %w", path, err)
	} else if err != nil {
		r.Damage = err.Error()
	}
	if info, err := f.Stat(); err == nil {
		r.LogBytes = info.Size()
	}
	r.WeightsHash = weights.Hash()
	return r, work, weights, nil
}

// exportWeights writes float32 tensors.
func exportWeights(path string, work *task.Setup, w *forward.Weights, step int) error {
	v, err := w.Values(work.Network)
	if err != nil {
		return err
	}
	var arrays []checkpoint.Array
	for i, p := range work.Network.Params() {
		b := make([]byte, 0, 4*p.Len())
		for _, x := range v.Params[i] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		arrays = append(arrays, checkpoint.Array{Name: p.Name, Kind: checkpoint.Parameter, DType: checkpoint.F32, Shape: p.Shape, Data: b})
	}
	var b bytes.Buffer
	if err := checkpoint.WriteSafetensors(&b, arrays, checkpoint.State{Step: uint64(step)}); err != nil {
		return err
	}
	return renameio.WriteFile(path, b.Bytes(), 0o644)
}

// verifyCmd checks a log.
type verifyCmd struct {
	Log  string `arg:"" help:"Log of a run."`
	Hash string `help:"Expected hash of the weights at its end." placeholder:"HASH"`
	JSON bool   `name:"json" help:"Print the result as JSON."`
}

// Help is what --help adds.
func (*verifyCmd) Help() string {
	return `Replays the log without evaluating the weights. Exit status 1: the log is damaged, or the weights are not those of --hash.

Examples:

  evenkeel forward verify run.log
  evenkeel forward verify run.log --hash 9f86d081884c7d65`
}

// Run runs the command.
func (c *verifyCmd) Run(a *cli.App) error {
	r, work, _, err := replayed(c.Log)
	if work == nil {
		return err
	}
	if c.JSON {
		if err := a.WriteJSON(r); err != nil {
			return err
		}
	}
	switch {
	case r.Damage != "":
		return fmt.Errorf("%s: %s; %d of %d steps are good", c.Log, r.Damage, r.Steps, r.Of)
	case c.Hash != "" && c.Hash != r.WeightsHash:
		return fmt.Errorf("%s gives weights %s, not %s", c.Log, r.WeightsHash, c.Hash)
	case c.JSON:
		return nil
	}
	done := "the complete run"
	if r.Steps < r.Of {
		done = "an interrupted run"
	}
	_, err = fmt.Fprintf(a.Out, "good: %d of %d steps, %s, weights %s\n", r.Steps, r.Of, done, r.WeightsHash)
	return err
}
