package bucket

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// lengthsFlags are embedded by commands that read lengths.
type lengthsFlags struct {
	Lengths string  `help:"File with one length per sample: text with one per line, or CSV, plain or .gz. - reads standard input." placeholder:"FILE"`
	Column  string  `help:"Column, by name or by number from 1; two columns make a pair. Default: the first." placeholder:"NAME[,NAME]"`
	Pair    string  `help:"What a pair is: sum (one sequence), max (both padded to the longer), or product (the sides of an image in patches). Default: ${default}." enum:"sum,max,product" default:"sum"`
	Scale   float64 `help:"Multiply each number, then round up: 100 turns seconds into frames of 10 ms." placeholder:"X"`

	chosen *columns // the columns read where none was named
}

// columns are the columns read of a file with more, where none was named: the user may have meant others.
type columns struct {
	Taken []string `json:"taken"`
	Of    int      `json:"of"`
}

// printColumns says which columns were read where none was named.
func (f *lengthsFlags) printColumns(w io.Writer) {
	if f.chosen == nil {
		return
	}
	name := f.Lengths
	if name == "-" {
		name = "standard input"
	}
	fmt.Fprintf(w, "Lengths: column %s of %s, one of %d; --column names another.\n", f.chosen.Taken[0], name, f.chosen.Of)
}

// read reads the file.
func (f *lengthsFlags) read() (bucket.Lengths, error) {
	debug.SetGCPercent(20) // lengths and order of a data set take most of the memory
	if f.Lengths == "" {
		return nil, badinput.Errorf("--lengths: name a file with a length per sample (- for standard input)")
	}
	o := lengthfile.Options{Column: f.Column, Pair: f.Pair, Scale: f.Scale, Chosen: func(taken []string, of int) {
		if f.Column == "" && of > len(taken) {
			f.chosen = &columns{taken, of}
		}
	}}
	if f.Lengths == "-" {
		return lengthfile.Read(os.Stdin, "standard input", o)
	}
	return readFile(f.Lengths, func(r io.Reader, name string) (bucket.Lengths, error) { return lengthfile.Read(r, name, o) })
}

// readFile reads a file by the function that knows its format.
func readFile[T any](path string, read func(r io.Reader, name string) (T, error)) (t T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, cli.FileError(err)
	}
	defer f.Close()
	return read(f, path)
}
