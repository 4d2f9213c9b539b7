package bucket

import (
	"io"
	"os"
	"runtime/debug"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/cmd/evenkeel/internal/cli"
)

// lengthsFlags are embedded by commands that read lengths.
type lengthsFlags struct {
	Lengths string  `help:"File with one length per sample: text with one per line, or CSV, plain or .gz. - reads standard input." required:"" placeholder:"FILE"`
	Column  string  `help:"Column, by name or by number from 1; two columns make a pair. Needed where a file has several." placeholder:"NAME[,NAME]"`
	Pair    string  `help:"What a pair is: sum (one sequence), max (both padded to the longer), or product (the sides of an image in patches). Default: ${default}." enum:"sum,max,product" default:"sum"`
	Scale   float64 `help:"Multiply each number, then round up: 100 turns seconds into frames of 10 ms." placeholder:"X"`
}

// read reads the file.
func (f *lengthsFlags) read() (bucket.Lengths, error) {
	debug.SetGCPercent(20) // lengths and order of a data set take most of the memory
	o := lengthfile.Options{Column: f.Column, Pair: f.Pair, Scale: f.Scale}
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
