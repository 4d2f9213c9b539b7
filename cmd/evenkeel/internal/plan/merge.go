package plan

import (
	"fmt"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/planner/layerprofile"
)

type mergeCmd struct {
	Profiles []string `arg:"" name:"profile" help:"Layer profiles of one model, .csv." placeholder:"FILE"`
	Out      string   `help:"Profile to write, .csv. Default: standard output." placeholder:"FILE"`
}

// Help is what --help adds.
func (*mergeCmd) Help() string {
	return `Joins the files that a model's measurement on a node of each type gave. All must have the same layers (number, parameters, bytes of
output). A measurement that is in two files is refused, and both lines are named.

Examples:

  evenkeel plan merge h100.csv a100.csv rtx.csv --out layers.csv`
}

// Run runs the command.
func (c *mergeCmd) Run(a *cli.App) error {
	var inputs []cli.File
	for _, path := range c.Profiles {
		inputs = append(inputs, cli.FileFlag("a profile", path))
	}
	if err := cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	p, err := layerprofile.Merge(c.Profiles...)
	if err != nil {
		return cli.FileError(err)
	}
	return writeProfile(a, p, c.Out)
}

// writeProfile writes a profile to a file or, without one, to standard output, and its warnings to the log.
func writeProfile(a *cli.App, p *layerprofile.Profile, out string) error {
	for _, w := range p.Warnings {
		a.Log.Warn().Msg(w)
	}
	if out == "" {
		return p.WriteCSV(a.Out)
	}
	if err := cli.WriteFile(out, p.WriteCSV); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s, devices %v. Written to %s.\n", cli.Count(len(p.Layers), "layer"), p.Devices(), out)
	return nil
}
