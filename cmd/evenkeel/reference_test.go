package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

var update = flag.Bool("update", false, "write the command reference and the pictures anew")

const reference = "../../docs/reference/commands.md"

// The command reference is what the flags say.
func TestReference(t *testing.T) {
	parser, err := newParser(io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	writeReference(&b, parser.Model.Node)
	if *update {
		if err := os.WriteFile(reference, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is not what the flags say; run go test ./cmd/evenkeel -run TestReference -update", reference)
	}
}

// Every command has a help text with examples.
func TestExamples(t *testing.T) {
	parser, err := newParser(io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range commandsOf(parser.Model.Node) {
		if n.Help == "" || len(n.Children) == 0 && !strings.Contains(n.Detail, "\nExamples:\n\n  evenkeel ") && !strings.HasPrefix(n.Detail, "Examples:\n\n  evenkeel ") {
			t.Errorf("%s: help %q, detail\n%s", n.FullPath(), n.Help, n.Detail)
		}
	}
}

// commandsOf are all commands below a node, in the order of the help.
func commandsOf(n *kong.Node) []*kong.Node {
	var all []*kong.Node
	for _, c := range n.Children {
		if !c.Hidden {
			all = append(append(all, c), commandsOf(c)...)
		}
	}
	return all
}

func writeReference(w io.Writer, root *kong.Node) {
	all := commandsOf(root)
	fmt.Fprintf(w, "# Commands\n\n<!-- Written by go test ./cmd/evenkeel -run TestReference -update. -->\n\nThe text of `evenkeel COMMAND --help`, for all commands.\n\n")
	writeDetail(w, root.Help)
	fmt.Fprintf(w, "| command | |\n|---|---|\n")
	for _, n := range all {
		fmt.Fprintf(w, "| [`%s`](#%s) | %s |\n", n.FullPath(), strings.ReplaceAll(n.FullPath(), " ", "-"), n.Help)
	}
	for _, n := range all {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n", n.FullPath(), n.Help)
		if len(n.Children) == 0 {
			fmt.Fprintf(w, "```\nevenkeel %s\n```\n\n", n.Summary())
		}
		writeDetail(w, n.Detail)
		for _, a := range n.Positional {
			fmt.Fprintf(w, "- `%s`: %s\n", a.Summary(), a.Help)
		}
		for _, f := range n.Flags {
			if !f.Hidden {
				fmt.Fprintf(w, "- %s\n", flagLine(f))
			}
		}
	}
}

// flagLine is a flag with its help.
func flagLine(f *kong.Flag) string {
	name := "--" + f.Name
	if f.Short != 0 {
		name = fmt.Sprintf("-%c, %s", f.Short, name)
	}
	if !f.IsBool() {
		name += "=" + f.FormatPlaceHolder()
	}
	line := fmt.Sprintf("`%s`: %s", name, f.Help)
	if f.Required {
		line += " Required."
	}
	return line
}

// writeDetail writes a help text: what is indented in it as code.
func writeDetail(w io.Writer, text string) {
	code := false
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines {
		indented := strings.HasPrefix(l, "  ")
		if !indented && strings.TrimSpace(l) != "" && code || indented && !code {
			fmt.Fprintln(w, "```")
			code = indented
			if !code {
				fmt.Fprintln(w)
			}
		}
		if !code || indented || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
			fmt.Fprintln(w, strings.TrimPrefix(l, "  "))
		}
	}
	if code {
		fmt.Fprintln(w, "```")
	}
	if text != "" {
		fmt.Fprintln(w)
	}
}
