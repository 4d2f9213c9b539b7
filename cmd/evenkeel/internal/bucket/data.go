package bucket

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/bucket/paired"
	"evenkeel/bucket/plain"
	"evenkeel/bucket/stepcost"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// lengthsFlags are embedded by commands that read lengths.
type lengthsFlags struct {
	Lengths string  `help:"File with one length per sample: text with one per line, or CSV, plain or .gz. - reads standard input." placeholder:"FILE"`
	Column  string  `help:"Column, by name or by number from 1; two columns (source,target) make a pair. Default: the first; with --pair apart the first two." placeholder:"NAME[,NAME]"`
	Pair    string  `help:"What a pair is: sum (one sequence), max (both padded to the longer), product (the sides of an image in patches), or apart (each padded to the longest of its own in the batch). Default: ${default}." enum:"sum,max,product,apart" default:"sum"`
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
	word, one := "column", "one"
	if len(f.chosen.Taken) > 1 {
		word, one = "columns", "two"
	}
	name := f.Lengths
	if name == "-" {
		name = "standard input"
	}
	fmt.Fprintf(w, "Lengths: %s %s of %s, %s of %d; --column names another.\n", word, strings.Join(f.chosen.Taken, ", "), name, one, f.chosen.Of)
}

// read reads the file: one length per sample, or where pairs are apart, two.
func (f *lengthsFlags) read(a *cli.App) (l bucket.Lengths, pairs *paired.Pairs, err error) {
	debug.SetGCPercent(20) // lengths and order of a data set take most of the memory
	if f.Lengths == "" {
		return nil, nil, badinput.Errorf("--lengths: name a file with a length per sample (- for standard input)")
	}
	o := lengthfile.Options{Column: f.Column, Pair: f.Pair, Scale: f.Scale, Chosen: func(taken []string, of int) {
		if f.Column == "" && of > len(taken) {
			f.chosen = &columns{taken, of}
		}
	}}
	text := func(r io.Reader, name string) {
		if f.Pair == apart {
			pairs, err = lengthfile.ReadPairs(r, name, o)
		} else {
			l, err = lengthfile.Read(r, name, o)
		}
	}
	if f.Lengths == "-" {
		text(os.Stdin, "standard input")
		return l, pairs, err
	}
	file, err := os.Open(f.Lengths)
	if err != nil {
		return nil, nil, cli.FileError(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, badinput.Errorf("--lengths: %s is a folder; name a file", f.Lengths)
	}
	report, clear := a.Progress("reading")
	defer clear()
	if !strings.HasSuffix(f.Lengths, ".gz") {
		o.Bytes = info.Size()
	}
	text(&reading{file, report, int(info.Size()), 0}, f.Lengths)
	return l, pairs, err
}

// apart is the --pair of two lengths.
const apart = "apart"

// data is what a command plans for: lengths, or pairs of them, and their cost.
type data struct {
	lengths bucket.Lengths // of pairs their kinds
	pairs   *paired.Pairs
	cost    *stepcost.Model
	both    *stepcost.PairModel
}

func readData(a *cli.App, t *tableFlags, f *lengthsFlags) (d data, err error) {
	if d.cost, d.both, err = t.read(f.Pair == apart); err != nil {
		return d, err
	}
	if d.lengths, d.pairs, err = f.read(a); d.pairs != nil {
		d.lengths = d.pairs.Kinds
	}
	return d, err
}

// plan plans in the mode that fits the data.
func (d *data) plan(f bucket.Config) (bucket.Planner, error) {
	if d.pairs != nil {
		return paired.Make(d.pairs, d.both, f)
	}
	return plain.Make(d.lengths, d.cost, f)
}

// bind joins a plan that was read with its lengths.
func bind(p *bucket.Plan, l bucket.Lengths, pairs *paired.Pairs) (bucket.Planner, error) {
	if pairs != nil {
		return paired.Bind(p, pairs)
	}
	return plain.Bind(p, l)
}

// reading reports how far a file has been read.
type reading struct {
	r           io.Reader
	report      func(done, total int)
	total, done int
}

func (r *reading) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.done += n
	r.report(min(r.done, r.total), r.total)
	return n, err
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

// tableFlags are embedded by commands that predict.
type tableFlags struct {
	Table  string `help:"Cost table, CSV with length,batch,seconds,peak_bytes, or with --pair apart source,target,batch,seconds,peak_bytes (evenkeel bucket profile writes one); empty seconds: out of memory." placeholder:"FILE"`
	Memory int64  `help:"Memory limit in bytes. Default: the largest peak in the table." placeholder:"BYTES"`
}

func (f *tableFlags) read(pairs bool) (one *stepcost.Model, two *stepcost.PairModel, err error) {
	if f.Table == "" {
		return nil, nil, badinput.Errorf("--table: name a cost table; evenkeel bucket profile writes one")
	}
	if f.Memory < 0 {
		return nil, nil, badinput.Errorf("--memory: %d bytes; must not be below 0", f.Memory)
	}
	t, err := readFile(f.Table, stepcost.ReadTable)
	if err != nil {
		return nil, nil, err
	}
	if pairs {
		two, err = stepcost.NewPair(t, f.Memory)
	} else {
		one, err = stepcost.New(t, f.Memory)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.Table, err)
	}
	return one, two, nil
}
