// Package forward holds the commands about forward-only training.
package forward

import (
	"encoding/json"
	"math"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// Cmd holds the commands about forward-only training.
type Cmd struct {
	Train  trainCmd  `cmd:"" help:"Train with all processors in this process."`
	Launch launchCmd `cmd:"" help:"Train with a process per processor, connected by NATS."`
	Join   joinCmd   `cmd:"" help:"Run one processor of a launched run, on this or another machine."`
	Replay replayCmd `cmd:"" help:"Rebuild a run's weights from its log, bit for bit."`
	Verify verifyCmd `cmd:"" help:"Check a log and the weights that follow from it."`
}

// flags are embedded by commands that start a run.
type flags struct {
	Data         string  `help:"Training data: digits (the UCI set, embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text." default:"digits" placeholder:"digits|FILE"`
	Model        string  `help:"Network: mlp, convnet (digits) or transformer (texts); default: mlp, for texts transformer." placeholder:"KIND"`
	Size         int     `help:"Width of a hidden layer or token, channels of the first convolution (${default})." default:"64" placeholder:"N"`
	Depth        int     `help:"Hidden layers, convolutions or blocks (${default})." default:"1" placeholder:"N"`
	Length       int     `help:"Characters of a sample of text (${default})." default:"32" placeholder:"N"`
	Processors   int     `short:"n" help:"Number of processors, even (${default})." default:"8" placeholder:"N"`
	Directions   int     `help:"Directions tried in a step, a divisor of the number of pairs; default: one per pair. 1 is the form of the patent." placeholder:"N"`
	Steps        int     `help:"Training steps (${default})." default:"2000" placeholder:"N"`
	Seed         uint64  `help:"Seed of weights, directions and examples (${default})." default:"1" placeholder:"N"`
	Epsilon      float64 `help:"Distance by which the weights are perturbed along a direction (${default})." default:"0.001" placeholder:"E"`
	LearningRate float64 `help:"Learning rate; default: 0.0075 times the square root of --directions." placeholder:"R"`
	Schedule     string  `help:"Learning rate schedule: constant, linear or cosine; default: ${default}." default:"cosine" enum:"constant,linear,cosine"`
	Examples     int     `help:"Examples in each of the two inputs of a pair (${default})." default:"32" placeholder:"N"`
	Cluster      string  `help:"Cluster file: its nodes are the processors, in pairs of the same device, with examples in proportion to their speed; instead of -n." placeholder:"FILE"`
	Kind         string  `help:"Distribution of the directions: random signs (rademacher) or normal numbers (gaussian); default: ${default}." default:"rademacher" enum:"rademacher,gaussian"`
	Momentum     float64 `help:"Momentum, 0 to 0.99." placeholder:"M"`
	Clip         float64 `help:"Clip slopes to this magnitude; default: no clipping." placeholder:"S"`
	Normalize    bool    `help:"Divide slopes by the standard deviation of the step's losses."`
	JSON         bool    `name:"json" help:"Print the summary as JSON."`

	nodes []string // of the cluster, by rank
}

// header makes the header of the run, and its data and network.
func (f *flags) header() (forward.Header, *task.Setup, error) {
	var h forward.Header
	c := forward.Config{
		Processors: f.Processors, Directions: f.Directions, Kind: forward.Kind(f.Kind), Key: f.Seed, Steps: f.Steps,
		Epsilon: f.Epsilon, LearningRate: f.LearningRate, Schedule: f.Schedule, Momentum: f.Momentum, Clip: f.Clip, Normalize: f.Normalize,
	}
	for range f.Processors / 2 {
		c.Examples = append(c.Examples, f.Examples)
	}
	if f.Cluster != "" {
		if err := f.share(&c); err != nil {
			return h, nil, err
		}
	}
	if c.Directions == 0 {
		c.Directions = c.Processors / 2
	}
	if c.LearningRate == 0 {
		c.LearningRate = 0.0075 * math.Sqrt(float64(c.Directions))
	}
	if err := c.Validate(); err != nil {
		return h, nil, badinput.Wrap(err)
	}
	t := task.Task{Data: f.Data, Model: f.Model, Size: f.Size, Depth: f.Depth, Length: f.Length, Seed: f.Seed}
	w, err := t.WithDefaults().Build()
	if err != nil {
		return h, nil, cli.FileError(err)
	}
	text, err := json.Marshal(w.Task)
	if err != nil {
		return h, nil, err
	}
	return forward.Header{Config: c, Task: text, Initial: forward.NewWeights(w.Network, c.Key).Hash()}, w, nil
}

// share distributes the examples over the pairs of a cluster by their speed.
func (f *flags) share(c *forward.Config) error {
	_, _, cl, err := cli.LoadCluster(f.Cluster, profile.Embedded())
	if err != nil {
		return err
	}
	ranks, sizes, err := forward.Pairs(cl, f.Examples)
	if err != nil {
		return badinput.Errorf("%s: %w", f.Cluster, err)
	}
	for _, i := range ranks {
		f.nodes = append(f.nodes, cl.Nodes[i].Name)
	}
	c.Processors, c.Examples = 2*len(sizes), sizes
	return nil
}

// inputs are the files that the flags name.
func (f *flags) inputs() []cli.File {
	if f.Data == task.Digits || f.Data == task.Synthetic {
		return nil
	}
	return []cli.File{cli.FileFlag("--data", f.Data), cli.FileFlag("--cluster", f.Cluster)}
}
