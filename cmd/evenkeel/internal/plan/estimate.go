package plan

import (
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
)

type estimateCmd struct {
	inputFlags
	Out string `help:"Profile to write, .csv. Default: standard output." placeholder:"FILE"`
}

// Help is what --help adds.
func (*estimateCmd) Help() string {
	return `Writes the layer profile that plan search --model works with, so that lines of it can be replaced by measurements.

Examples:

  evenkeel plan estimate --model llama-3-8b --cluster cluster.yaml --out layers.csv`
}

// Run runs the command.
func (c *estimateCmd) Run(a *cli.App) error {
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--cluster", c.Cluster)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	if c.Model == "" {
		return badinput.Errorf("--model is missing: a config.json, or a name")
	}
	p, _, err := c.read(&planner.Options{})
	if err != nil {
		return err
	}
	return writeProfile(a, p, c.Out)
}
