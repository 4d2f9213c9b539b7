package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"evenkeel/internal/badinput"
)

// The parser's words for a flag that is not followed by a value.
var (
	noValue   = regexp.MustCompile(`^(--[a-z-]+): expected .* value but got "(.*?)" \(`)
	looseFile = regexp.MustCompile(`^unexpected argument (\S+\.(?:ya?ml))$`)
)

// parse reads a command line; what is wrong with it is said in words of the command line.
func parse(args []string, out, errs io.Writer) (*kong.Context, error) {
	parser, err := newParser(out, errs)
	if err != nil {
		return nil, err
	}
	command, err := parser.Parse(args)
	if err != nil {
		return nil, reworded(err)
	}
	return command, nil
}

// reworded replaces messages of the parser that speak of its tokens or are cut off.
func reworded(err error) error {
	if m := noValue.FindStringSubmatch(err.Error()); m != nil {
		if m[2] == "EOL" {
			return badinput.Errorf("%s: its value is missing", m[1])
		}
		return badinput.Errorf("%s: its value is missing before %s; if that is the value, write %s=%s", m[1], m[2], m[1], m[2])
	}
	if m := looseFile.FindStringSubmatch(err.Error()); m != nil {
		return badinput.Errorf("unexpected argument %s; a file follows its flag, a cluster's --cluster %s", m[1], m[1])
	}
	var p *kong.ParseError
	if !errors.As(err, &p) || !strings.HasPrefix(err.Error(), "expected one of ") {
		return badinput.Wrap(err)
	}
	family := p.Context.Selected()
	if family == nil || len(family.Children) == 0 {
		return badinput.Wrap(err)
	}
	var names []string
	for _, c := range family.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	path := fmt.Sprintf("evenkeel %s", family.Path())
	return badinput.Errorf("%s needs a command: %s; %s --help describes them", path, strings.Join(names, ", "), path)
}
