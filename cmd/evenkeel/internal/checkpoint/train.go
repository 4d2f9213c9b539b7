package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/agent/export"
	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/train"
	"evenkeel/train/task"
)

// trainCmd trains with package train and saves with package checkpoint.
type trainCmd struct {
	Out          string  `help:"Folder of the run. A folder that has a run already is refused without --resume." default:"training" placeholder:"DIR"`
	Data         string  `help:"digits (embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text. Default: digits." placeholder:"NAME|FILE"`
	Model        string  `help:"mlp, convnet (digits only) or transformer (text only). Default: transformer for text, mlp for all else." placeholder:"NAME"`
	Size         int     `help:"Width of a hidden layer (default 128) or token (64), channels of the first convolution (16)." placeholder:"N"`
	Depth        int     `help:"Hidden layers, blocks or convolutions. Default: 2." placeholder:"N"`
	Length       int     `help:"Characters of a sample of text. Default: 64." placeholder:"N"`
	MicroBatches []int   `help:"Samples of each node in a step, one number per node. Default: 16,16." placeholder:"N"`
	Sizes        string  `help:"Take the micro-batches from a sizes file (JSON) of evenkeel export." placeholder:"FILE"`
	Optimizer    string  `help:"adamw, momentum or sgd. Default: adamw." placeholder:"NAME"`
	Rate         float64 `help:"Learning rate. Default: 0.001 for adamw, 0.01 for momentum, 0.1 for sgd." placeholder:"X"`
	Steps        int     `help:"Training steps. Default: 1000." placeholder:"N"`
	Seed         uint64  `help:"Seed of the weights and the order of the data; the same seed gives the same bits. Default: 0." placeholder:"N"`
	SaveEvery    int     `help:"Steps between saves; 1 saves every step, and training waits for the disk if needed. Default: chosen while training, so that saves take about 3.5 % of the time." placeholder:"N"`
	Staged       bool    `help:"Copy each layer before it is written, for storage that is slower than a step."`
	Resume       bool    `help:"Continue the run of the folder; the result has the same bits as without the interruption."`
	JSON         bool    `name:"json" help:"Print the summary as JSON."`
}

// Help is what --help adds.
func (*trainCmd) Help() string {
	return `Every node is a goroutine with its own copy of the network. Layer by layer, from the last one, gradients are summed over the nodes while those of the
layer before are computed; then the layer is updated and saved while training continues. Kill it at any time, with Ctrl-C or kill -9: --resume
continues from the newest intact checkpoint and ends in the same weights.

Examples:

  evenkeel checkpoint train
  evenkeel checkpoint train --resume
  evenkeel checkpoint train --model convnet --micro-batches 32,24,8 --out convnet
  evenkeel checkpoint train --data book.txt --steps 5000 --save-every 1 --out book
  evenkeel export --out sizes.json && evenkeel checkpoint train --sizes sizes.json`
}

// The files of a run.
const (
	taskFile       = "task.json"
	slotsFile      = "run.ckpt"
	lossesFile     = "losses.csv"
	weightsFile    = "model.safetensors"
	lossesFigure   = "losses"
	taskFlagsGiven = "data model size depth length micro-batches sizes optimizer rate steps seed"
)

// Run runs the command.
func (c *trainCmd) Run(a *cli.App) error {
	if c.SaveEvery < 0 {
		return badinput.Errorf("--save-every: %d; must be at least 1; leave it out to have it chosen from the cost of saves", c.SaveEvery)
	}
	t, err := c.task(a)
	if err != nil {
		return err
	}
	w, err := t.Build()
	if err != nil {
		return cli.FileError(err)
	}
	if !c.Resume {
		if err := os.MkdirAll(c.Out, 0o755); err != nil {
			return badinput.Wrap(err)
		}
		if err := w.Task.Save(filepath.Join(c.Out, taskFile)); err != nil {
			return badinput.Wrap(err)
		}
	}
	tr, err := train.New(w.Network, w.Training, w.Config)
	if err != nil {
		return err
	}
	r := &savedRun{App: a, command: c, work: w, trainer: tr}
	return r.run()
}

// task is the task that the flags describe, or that of the run to resume.
func (c *trainCmd) task(a *cli.App) (task.Task, error) {
	path := filepath.Join(c.Out, taskFile)
	if c.Resume {
		for _, g := range a.Given {
			if strings.Contains(" "+taskFlagsGiven+" ", " "+g+" ") {
				return task.Task{}, badinput.Errorf("--%s: a run is resumed with the flags that it began with; leave it out, or start another run with --out", g)
			}
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return task.Task{}, badinput.Errorf("nothing to resume in %s: it has no %s; start without --resume", c.Out, taskFile)
		}
		if err != nil {
			return task.Task{}, badinput.Wrap(err)
		}
		defer f.Close()
		t, err := task.Read(f)
		if err != nil {
			return t, badinput.Errorf("%s: %w", path, err)
		}
		return t, nil
	}
	for _, name := range []string{taskFile, slotsFile} {
		if _, err := os.Lstat(filepath.Join(c.Out, name)); err == nil {
			return task.Task{}, badinput.Errorf("%s exists already: continue that run with --resume, or choose another folder with --out", filepath.Join(c.Out, name))
		}
	}
	for _, f := range []struct {
		name string
		zero bool
	}{{"size", c.Size == 0}, {"depth", c.Depth == 0}, {"length", c.Length == 0}, {"steps", c.Steps == 0}, {"rate", c.Rate == 0}} {
		if f.zero && slices.Contains(a.Given, f.name) {
			return task.Task{}, badinput.Errorf("--%s 0: must be above 0; leave it out for the default", f.name)
		}
	}
	t := task.Task{
		Data: c.Data, Model: c.Model, Size: c.Size, Depth: c.Depth, Length: c.Length, MicroBatches: c.MicroBatches,
		Optimizer: train.Method(c.Optimizer), Rate: c.Rate, Steps: c.Steps, Seed: c.Seed,
	}
	if c.Sizes != "" {
		if len(c.MicroBatches) > 0 {
			return t, badinput.Errorf("--micro-batches and --sizes: give only one")
		}
		f, err := os.Open(c.Sizes)
		if err != nil {
			return t, cli.FileError(err)
		}
		defer f.Close()
		s, err := export.Read(f)
		if err != nil {
			return t, badinput.Errorf("--sizes: %s: %w", c.Sizes, err)
		}
		for _, n := range s.Ranks() {
			t.MicroBatches = append(t.MicroBatches, n.Share)
		}
	}
	return t.WithDefaults(), nil
}

func (c *trainCmd) path(name string) string { return filepath.Join(c.Out, name) }

func (c *trainCmd) options() checkpoint.Options {
	o := checkpoint.Options{}
	if c.SaveEvery > 0 { // save all these steps, not only as many as the disk keeps up with
		o.WhenFull = checkpoint.Block
	}
	if c.Staged {
		o.Mode = checkpoint.Staged
	}
	return o
}
