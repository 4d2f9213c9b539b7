// Package forward holds the commands about forward-only training.
package forward

import (
	"encoding/json"
	"slices"

	"github.com/evenkeel/evenkeel/cluster/profile"
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/train/task"
)

// Cmd holds the commands about forward-only training.
type Cmd struct {
	Train  trainCmd  `cmd:"" help:"Train with all processors in this process."`
	Launch launchCmd `cmd:"" help:"Train with a process per processor, connected by NATS; take over a run whose launch was killed."`
	Join   joinCmd   `cmd:"" help:"Run one processor of a launched run, on this or another machine."`
	Serve  serveCmd  `cmd:"" help:"Run a NATS server for runs over several machines, with TLS and a token for each rank."`
	Runs   runsCmd   `cmd:"" help:"List the runs on a server."`
	Stop   stopCmd   `cmd:"" help:"End a run after its present 64 steps."`
	Show   showCmd   `cmd:"" help:"Show a run's progress and its absent processors."`
	Remove removeCmd `cmd:"" help:"Delete a run from its server."`
	Export exportCmd `cmd:"" help:"Write the log of a run, from its server."`
	Replay replayCmd `cmd:"" help:"Rebuild a run's weights from its log, bit for bit."`
	Verify verifyCmd `cmd:"" help:"Check a log and the weights that follow from it."`
}

// flags are embedded by commands that start a run.
type flags struct {
	Data         string   `help:"Training data: digits (the UCI set, embedded), synthetic, or a file: .csv (numbers, the class in the last column) or text." default:"digits" placeholder:"digits|FILE"`
	Model        string   `help:"Network: mlp, convnet (digits) or transformer (texts); default: mlp, for texts transformer." placeholder:"KIND"`
	Size         int      `help:"Width of a hidden layer or token, channels of the first convolution (${default})." default:"64" placeholder:"N"`
	Depth        int      `help:"Hidden layers, convolutions or blocks (${default})." default:"1" placeholder:"N"`
	Length       int      `help:"Characters of a sample of text (${default})." default:"32" placeholder:"N"`
	Processors   int      `short:"n" help:"Number of processors, even (${default})." default:"8" placeholder:"N"`
	Estimator    string   `help:"How slopes are estimated: each processor tries a direction of its own on shared examples and compares its loss with the mean of all (each), or each pair tries a direction and its opposite (pairs); default: each, unless --directions is given or the pairs of --cluster have unequal examples." placeholder:"each|pairs"`
	Directions   int      `help:"Directions tried in a step; with --estimator pairs a divisor of the number of pairs. Default: one per pair, with --estimator each one per processor. The patent has 1." placeholder:"N"`
	Steps        int      `help:"Training steps (${default})." default:"2000" placeholder:"N"`
	Seed         uint64   `help:"Seed of weights, directions and examples (${default})." default:"1" placeholder:"N"`
	Epsilon      float64  `help:"Distance by which the weights are perturbed along a direction (${default})." default:"0.001" placeholder:"E"`
	LearningRate float64  `help:"Learning rate; default: the square root of --directions divided by 8 times the fourth root of the number of weights; without --normalize 0.0025 times the square root of --directions; with --init half of that." placeholder:"R"`
	Schedule     string   `help:"Learning rate schedule: constant, linear or cosine; default: ${default}." default:"cosine" enum:"constant,linear,cosine"`
	Examples     int      `help:"Examples in each of the two inputs of a step (${default})." default:"32" placeholder:"N"`
	Cluster      string   `help:"Cluster file: its nodes are the processors, in pairs of the same device, with examples in proportion to their speed; instead of -n." placeholder:"FILE"`
	Kind         string   `help:"Distribution of the directions: random signs (rademacher) or normal numbers (gaussian); default: ${default}." default:"rademacher" enum:"rademacher,gaussian"`
	Momentum     float64  `help:"Momentum, 0 to 0.99." placeholder:"M"`
	Clip         *float64 `help:"Clip slopes to this many times their root mean square, without --normalize to this magnitude; 0: no clipping; default: 3, without --normalize 0." placeholder:"S"`
	Normalize    bool     `help:"Divide slopes by their running root mean square, so that one learning rate serves flat and steep stretches." default:"true" negatable:""`
	Guard        bool     `help:"Halve the learning rate after 64 steps whose losses are above those of the best 64 by more than chance." default:"true" negatable:""`
	Shared       bool     `help:"Give all pairs the same examples in a step, as FZOO does."`
	StopAfter    int      `help:"End the run when the validation loss has not fallen for so many steps. It is computed every 64 steps on a tenth of the training examples, set aside for it." placeholder:"STEPS"`
	Init         string   `help:"Weights to start from: safetensors with the network's tensors, by name; default: random ones, from --seed." placeholder:"FILE"`
	JSON         bool     `name:"json" help:"Print the summary as JSON."`

	nodes []string // of the cluster, by rank
}

// defaultClip is how many times their root mean square slopes may be.
const defaultClip = 3

// header makes the header of the run, its data and network, and the weights that it begins with.
func (f *flags) header() (h forward.Header, work *setup, weights *forward.Weights, err error) {
	c := forward.Config{
		Processors: f.Processors, Directions: f.Directions, Kind: forward.Kind(f.Kind), Key: f.Seed, Steps: f.Steps,
		Epsilon: f.Epsilon, LearningRate: f.LearningRate, Schedule: f.Schedule, Momentum: f.Momentum, Normalize: f.Normalize, Guard: f.Guard, Shared: f.Shared,
	}
	for range f.Processors / 2 {
		c.Examples = append(c.Examples, f.Examples)
	}
	if f.Cluster != "" {
		if err := f.share(&c); err != nil {
			return h, nil, nil, err
		}
	}
	if c.Estimator = forward.Estimator(f.Estimator); f.Estimator == "" && f.Directions == 0 && equal(c.Examples) {
		c.Estimator = forward.Each
	}
	c.Shared = c.Shared || c.Estimator == forward.Each
	if c.Directions == 0 {
		c.Directions = c.Processors / 2
		if c.Estimator == forward.Each {
			c.Directions = c.Processors
		}
	}
	if c.Normalize {
		c.Clip = defaultClip
	}
	if f.Clip != nil {
		c.Clip = *f.Clip
	}
	if f.StopAfter < 0 {
		return h, nil, nil, badinput.Errorf("--stop-after %d: steps, above 0", f.StopAfter)
	}
	probe := c
	if probe.LearningRate == 0 {
		probe.LearningRate = 1 // the default depends on the network, which is made from a configuration that is right
	}
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
	} else if initial = forward.FromFile; true {
		weights, err = readWeights(f.Init, tensorsOf(work.Network))
	}
	if err != nil {
		return h, nil, nil, err
	}
	if c.LearningRate == 0 {
		c.LearningRate = c.DefaultRate(weights.Len(), initial)
	}
	h = forward.NewHeader(c, forward.Examples{Count: work.Training.Len(), Hash: work.Task.DataHash}, initial, weights)
	h.Program, err = json.Marshal(program{Task: &work.Task, StopAfter: f.StopAfter})
	return h, work, weights, err
}

func equal(sizes []int) bool {
	return !slices.ContainsFunc(sizes, func(n int) bool { return n != sizes[0] })
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
	all := []cli.File{cli.FileFlag("--cluster", f.Cluster), cli.FileFlag("--init", f.Init)}
	if f.Data != task.Digits && f.Data != task.Synthetic {
		all = append(all, cli.FileFlag("--data", f.Data))
	}
	return all
}
