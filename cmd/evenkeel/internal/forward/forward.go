// Package forward holds the commands about forward-only training.
package forward

import (
	"cmp"
	"encoding/json"
	"slices"

	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/badinput"
	"evenkeel/train/task"
)

// Cmd holds the commands about forward-only training.
type Cmd struct {
	Train  trainCmd  `cmd:"" help:"Train with all processors in this process."`
	Replay replayCmd `cmd:"" help:"Rebuild a run's weights from its log, bit for bit, and check the log."`
	Serve  serveCmd  `cmd:"" help:"Run a NATS server for runs over several machines, with TLS if asked and a token for each rank."`
	Launch launchCmd `cmd:"" help:"Create a run on a server, print the command that joins each processor, and follow the run to its end."`
	Join   joinCmd   `cmd:"" help:"Run one processor of a launched run, on this or another machine."`
	Runs   runsCmd   `cmd:"" help:"List the runs on a server, or show one run's progress and its absent processors."`
	Stop   stopCmd   `cmd:"" help:"End a run with its present block of 64 steps."`
	Export exportCmd `cmd:"" help:"Write the log of a run, from its server."`
	Remove removeCmd `cmd:"" help:"Delete a run from its server."`
}

// flags describe a run.
type flags struct {
	Data         string  `help:"Training data: digits (the UCI set, embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text." default:"digits" placeholder:"digits|FILE"`
	Model        string  `help:"Network: mlp, convnet (digits) or transformer (texts); default: mlp, for texts transformer." placeholder:"KIND"`
	Size         int     `help:"Width of a hidden layer or of a token, or channels of the first convolution (${default})." default:"64" placeholder:"N"`
	Depth        int     `help:"Hidden layers, convolutions or blocks (${default})." default:"1" placeholder:"N"`
	Length       int     `help:"Characters of a sample of text (${default})." default:"32" placeholder:"N"`
	Processors   int     `short:"n" help:"Number of processors, even (${default})." default:"8" placeholder:"N"`
	Estimator    string  `help:"How slopes are estimated: each processor tries a direction of its own on shared examples and compares its loss with the mean of all (each), or each pair tries a direction and its opposite (pairs); default: each, unless --directions is given or the pairs of --cluster have unequal examples." placeholder:"each|pairs"`
	Directions   int     `help:"Directions tried in a step; with --estimator pairs a divisor of the number of pairs. Default: one per pair, with --estimator each one per processor. The patent has 1." placeholder:"N"`
	Steps        int     `help:"Training steps (${default})." default:"2000" placeholder:"N"`
	Seed         uint64  `help:"Seed of weights, directions and examples (${default})." default:"1" placeholder:"N"`
	LearningRate float64 `help:"Learning rate; default: the square root of --directions divided by 8 times the fourth root of the number of weights; less with fewer than 8 examples." placeholder:"R"`
	Schedule     string  `help:"Learning rate schedule: constant, or cosine, which falls to 0 at the last step; default: ${default}." default:"cosine" enum:"constant,cosine"`
	Examples     int     `help:"Examples in each of the two inputs of a step (${default})." default:"32" placeholder:"N"`
	Cluster      string  `help:"Cluster file: its nodes are the processors, in pairs of the same device, with examples in proportion to their speed; instead of -n." placeholder:"FILE"`
	Guard        bool    `help:"Halve the learning rate after a block of 64 steps whose mean loss exceeds the best block's by more than chance." default:"true" negatable:""`
	StopAfter    int     `help:"End the run when the validation loss has not fallen for so many steps. It is computed every 64 steps on a tenth of the training examples, set aside for it." placeholder:"STEPS"`
	Init         string  `help:"Weights to start from: safetensors with the network's tensors, by name; default: random ones, from --seed." placeholder:"FILE"`
	JSON         bool    `name:"json" help:"Print the summary as JSON."`

	nodes []string // names of the cluster's nodes, by rank
}

const (
	clip    = 3    // bounds slopes, in units of their root mean square
	epsilon = 1e-3 // moves a weight in a trial
)

// header makes the header of the run, its data and network, and the weights that it begins with.
func (f *flags) header() (h forward.Header, work *setup, weights *forward.Weights, err error) {
	c := forward.Config{
		Processors: f.Processors, Directions: f.Directions, Key: f.Seed, Steps: f.Steps,
		Epsilon: epsilon, LearningRate: f.LearningRate, Schedule: f.Schedule, Clip: clip, Guard: f.Guard,
	}
	for range f.Processors / 2 {
		c.Examples = append(c.Examples, f.Examples)
	}
	if f.Cluster != "" {
		if err := f.share(&c); err != nil {
			return h, nil, nil, err
		}
	}
	unequal := func(n int) bool { return n != c.Examples[0] }
	c.Estimator = forward.Each
	if f.Directions != 0 || slices.ContainsFunc(c.Examples, unequal) {
		c.Estimator = forward.Paired
	}
	c.Estimator = cmp.Or(forward.Estimator(f.Estimator), c.Estimator)
	if c.Directions == 0 {
		c.Directions = c.Processors / 2
		if c.Estimator == forward.Each {
			c.Directions = c.Processors
		}
	}
	if f.StopAfter < 0 {
		return h, nil, nil, badinput.Errorf("--stop-after %d: must not be negative", f.StopAfter)
	}
	probe := c
	probe.LearningRate = cmp.Or(c.LearningRate, 1) // the default depends on the network, which is not built yet
	if err := probe.Validate(); err != nil {
		return h, nil, nil, badinput.Wrap(err)
	}
	t := task.Task{Data: f.Data, Model: f.Model, Size: f.Size, Depth: f.Depth, Length: f.Length, Seed: f.Seed}
	built, err := t.WithDefaults().Build()
	if err != nil {
		return h, nil, nil, cli.FileError(err)
	}
	work = setAside(built, f.StopAfter)
	initial := forward.FromKey
	if f.Init == "" {
		weights = forward.NewWeights(work.Network, c.Key)
	} else {
		initial = forward.FromFile
		weights, err = readWeights(f.Init, tensorsOf(work.Network))
	}
	if err != nil {
		return h, nil, nil, err
	}
	if c.LearningRate == 0 {
		c.LearningRate = c.DefaultRate(weights.Len())
	}
	h = forward.NewHeader(c, forward.Examples{Count: work.Training.Len(), Hash: work.Task.DataHash}, initial, weights)
	h.Program, err = json.Marshal(program{Task: &work.Task, StopAfter: f.StopAfter})
	return h, work, weights, err
}

// share makes pairs of a cluster's nodes, and gives them examples by their speed.
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

// inputs returns the files that the flags name.
func (f *flags) inputs() []cli.File {
	all := []cli.File{cli.FileFlag("--cluster", f.Cluster), cli.FileFlag("--init", f.Init)}
	if f.Data != task.Digits && f.Data != task.Synthetic {
		all = append(all, cli.FileFlag("--data", f.Data))
	}
	return all
}
