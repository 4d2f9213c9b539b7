package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner"
	"evenkeel/planner/export"
)

type exportCmd struct {
	Plan            string `arg:"" help:"Plan file." placeholder:"FILE"`
	Format          string `help:"One of ${planFormats}." required:"" placeholder:"NAME"`
	Out             string `help:"File to write; default: standard output." placeholder:"FILE"`
	EmbeddingLayers int    `help:"Number of first layers of the plan that are the embedding; only for megatron." placeholder:"N"`
	HeadLayers      int    `help:"Number of last layers of the plan that are the final norm and the output; only for megatron." placeholder:"N"`
}

// Help is what --help adds.
func (*exportCmd) Help() string {
	text := `If the trainer cannot run the plan, an error says why and nothing is written. Warnings name the settings that the format cannot
express. docs/guides/plan-export.md shows how to use each format.

Formats:

`
	for _, f := range export.Formats() {
		text += fmt.Sprintf("  %-10s %s\n", f.Name, f.Description)
	}
	return text + `
Examples:

  evenkeel plan export plan.json --format megatron --embedding-layers 1 --head-layers 1 --out plan.args
  evenkeel plan export plan.json --format deepspeed --out deepspeed.json
  evenkeel plan export plan.json --format torch --out plan.py`
}

// Run runs the command.
func (c *exportCmd) Run(a *cli.App) error {
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("the plan", c.Plan)}, []cli.File{cli.FileFlag("--out", c.Out)}); err != nil {
		return err
	}
	if c.Format != "megatron" && (c.EmbeddingLayers != 0 || c.HeadLayers != 0) {
		return badinput.Errorf("--embedding-layers and --head-layers have no effect with --format %s; leave them out", c.Format)
	}
	p, err := planner.LoadPlan(c.Plan)
	if err != nil {
		return cli.FileError(err)
	}
	var text bytes.Buffer
	warnings, err := export.Write(&text, c.Format, p, export.Options{EmbeddingLayers: c.EmbeddingLayers, HeadLayers: c.HeadLayers})
	for _, w := range warnings {
		a.Log.Warn().Msg(w)
	}
	if errors.Is(err, export.ErrUnsupported) {
		return fmt.Errorf("%w. evenkeel plan search --for megatron, deepspeed or torch finds plans that the trainer can run", err)
	}
	if err != nil {
		return err
	}
	if c.Out == "" {
		_, err = text.WriteTo(a.Out)
		return err
	}
	if err := cli.WriteFile(c.Out, func(w io.Writer) error { _, err := text.WriteTo(w); return err }); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "Written to %s.\n", c.Out)
	return nil
}

// FormatNames lists the formats, for the help.
func FormatNames() string {
	var names []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
