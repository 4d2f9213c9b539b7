// Package checkpoint holds the commands about checkpoint files.
package checkpoint

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
)

// Cmd holds the commands about checkpoint files.
type Cmd struct {
	Inspect  inspectCmd  `cmd:"" help:"Show the contents of a checkpoint file."`
	Verify   verifyCmd   `cmd:"" help:"Read every byte and report damage."`
	Export   exportCmd   `cmd:"" help:"Write a checkpoint as a safetensors file."`
	Import   importCmd   `cmd:"" help:"Make a checkpoint file from a safetensors file."`
	Upload   uploadCmd   `cmd:"" help:"Keep a copy of the newest checkpoint in storage that speaks S3."`
	Download downloadCmd `cmd:"" help:"Get checkpoint files back from storage that speaks S3."`
	Train    trainCmd    `cmd:"" help:"Train a small network that can be killed at any time and resumed."`
}

// Help is what --help adds.
func (*Cmd) Help() string {
	return `A checkpoint file has a fixed size and slots for several checkpoints. A save replaces an older one, so a crash leaves the newest complete one
intact. Training programs write the file with the Go package checkpoint or the Python package evenkeel.checkpoint; docs/guides/checkpoint.md
shows how, docs/reference/formats/checkpoint.md describes the file.

Examples:

  evenkeel checkpoint import --from model.safetensors run.ckpt
  evenkeel checkpoint inspect run.ckpt
  evenkeel checkpoint export run.ckpt --out model.safetensors`
}

// fileArgs are the files of one model: one, or one per rank.
type fileArgs struct {
	Files []string `arg:"" name:"file" help:"Checkpoint file; or the files of all ranks, if the arrays are striped over them."`
}

// open opens them for reading; another process may be writing them.
func (c *fileArgs) open(a *cli.App, what string) (*checkpoint.Set, func(), error) {
	report, clear := a.Progress(what)
	s, err := checkpoint.OpenSet(c.Files, nil, checkpoint.Options{ReadOnly: true, Progress: inBytes(report)})
	if err != nil {
		clear()
		return nil, nil, c.setError(err)
	}
	return s, func() { clear(); s.Close() }, nil
}

// inBytes reports bytes as MiB.
func inBytes(report func(done, total int)) func(done, total int64) {
	return func(done, total int64) { report(int(done>>20), int((total+1<<20-1)>>20)) }
}

type inspectCmd struct {
	fileArgs
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is what --help adds.
func (*inspectCmd) Help() string {
	return `Lists slots and arrays, and reads no data: evenkeel checkpoint verify does. A file may be inspected while a program writes it; a slot that is
being written shows as empty.

Examples:

  evenkeel checkpoint inspect run.ckpt
  evenkeel checkpoint inspect run.ckpt --json`
}

// inspected describes one file.
type inspected struct {
	File string `json:"file"`
	checkpoint.Info
	Slots  []checkpoint.SlotReport `json:"slots"`
	Layout []arrayInfo             `json:"layout,omitempty"`
}

type arrayInfo struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"`
}

// Run runs the command.
func (i *inspectCmd) Run(a *cli.App) error {
	out, err := i.inspect(a, false)
	if err != nil {
		return err
	}
	if i.JSON {
		return a.WriteJSON(map[string]any{"files": out})
	}
	var lines []string
	for k, one := range out {
		if k > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, one.lines()...)
	}
	return cli.PrintLines(a.Out, lines)
}

// inspect describes the files, each by itself: its arrays or, to verify it, all that is damaged.
func (c *fileArgs) inspect(a *cli.App, verify bool) (out []inspected, err error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	for _, path := range c.Files {
		one, err := inspect(a, path, verify)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func inspect(a *cli.App, path string, verify bool) (inspected, error) {
	report, clear := a.Progress("reading (MiB)")
	defer clear()
	f, err := checkpoint.Open(path, nil, checkpoint.Options{ReadOnly: true, Progress: inBytes(report)})
	if err != nil {
		return inspected{}, cli.FileError(err)
	}
	defer f.Close()
	out := inspected{File: path, Info: f.Info(), Slots: f.Slots()}
	if verify {
		report, err := f.Verify()
		if err != nil {
			return inspected{}, err
		}
		out.Slots, out.Damage = report.Slots, report.Damage
		return out, nil
	}
	for _, x := range f.Arrays() {
		out.Layout = append(out.Layout, arrayInfo{x.Name, x.DType.String(), x.Shape, x.Kind.String(), x.Len()})
	}
	return out, nil
}

func (i inspected) lines() []string {
	size := humanize.IBytes(uint64(i.Bytes))
	head := fmt.Sprintf("%s: %d arrays, %s a checkpoint, %s on the disk", i.File, i.Arrays, size, humanize.IBytes(uint64(i.FileBytes)))
	if i.Ranks > 1 {
		head += fmt.Sprintf(", rank %d of %d", i.Rank, i.Ranks)
	}
	lines := []string{head, ""}
	var rows [][]string
	for _, s := range i.Slots {
		row := []string{fmt.Sprint(s.Slot), "", "", "", "empty"}
		switch {
		case s.Fault != "":
			row[4] = "DAMAGED: " + s.Fault
		case s.Verified:
			row[4] = fmt.Sprintf("verified: cursor %d, digest %s", s.Cursor, s.Digest)
		case s.Sequence > 0:
			row[4] = "committed"
		}
		if s.Sequence > 0 {
			row[1], row[2], row[3] = fmt.Sprint(s.Step), fmt.Sprint(s.Sequence), size
		}
		rows = append(rows, row)
	}
	lines = append(lines, cli.Table([]cli.Column{cli.Right("slot"), cli.Right("step"), cli.Right("save"), cli.Right("size"), cli.Left("state")}, rows)...)
	for _, d := range i.Damage {
		lines = append(lines, "damaged: "+d)
	}
	if len(i.Layout) > 0 {
		rows = nil
		for _, x := range i.Layout {
			rows = append(rows, []string{x.Name, x.Kind, x.DType, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x.Shape)), " x "), "[]"), humanize.IBytes(uint64(x.Bytes))})
		}
		lines = append(append(lines, ""), cli.Table([]cli.Column{cli.Left("array"), cli.Left("kind"), cli.Left("type"), cli.Left("shape"), cli.Right("size")}, rows)...)
	}
	return lines
}
