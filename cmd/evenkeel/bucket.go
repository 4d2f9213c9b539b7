package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/renameio/v2"

	"github.com/evenkeel/evenkeel/bucket"
)

// bucketCmd batches samples of unequal lengths.
type bucketCmd struct {
	Profile  bucketProfileCmd  `cmd:"" help:"Measure training steps over lengths and batch sizes."`
	Plan     bucketPlanCmd     `cmd:"" help:"Choose buckets, batch sizes and how batches are dealt to ranks."`
	Schedule bucketScheduleCmd `cmd:"" help:"Write an epoch's batches, step by step and rank by rank."`
	Simulate bucketSimulateCmd `cmd:"" help:"Score a schedule, ours or another's, against a table."`
}

// Help is shown under the commands.
func (*bucketCmd) Help() string {
	return `Measure, plan, schedule, train:

  evenkeel bucket profile --lengths lengths.txt --out table.csv -- python3 step.py {length} {batch}
  evenkeel bucket plan --lengths lengths.txt --table table.csv --ranks 8 --out plan.json
  evenkeel bucket schedule --lengths lengths.txt --plan plan.json --epoch 0 --out epoch0.jsonl
  evenkeel bucket simulate --lengths lengths.txt --table table.csv --schedule epoch0.jsonl

docs/guides/bucket.md has the whole way.`
}

// lengthsFlags are embedded by commands that read lengths.
type lengthsFlags struct {
	Lengths string  `help:"Lengths: a number a line, or CSV or Parquet with --column; text may be gzipped; - is standard input." required:"" placeholder:"FILE"`
	Column  string  `help:"Column by name, in CSV also by number from 1; two with a comma are source and target. Default: the first." placeholder:"NAME[,NAME]"`
	Pair    string  `help:"What source and target make: sum (one sequence) or max (padded alike)." enum:"sum,max" default:"sum"`
	Scale   float64 `help:"Multiply each number and round up: 100 makes frames of 10 ms from seconds." placeholder:"X"`
}

func (f *lengthsFlags) read() (bucket.Lengths, error) {
	file, name := os.Stdin, "standard input"
	if f.Lengths != "-" {
		var err error
		if file, err = os.Open(f.Lengths); err != nil {
			return nil, opened(err)
		}
		defer file.Close()
		name = f.Lengths
	}
	o := bucket.LengthsOptions{Column: f.Column, Pair: f.Pair, Scale: f.Scale}
	var magic [4]byte
	if _, err := file.ReadAt(magic[:], 0); err == nil && string(magic[:]) == "PAR1" {
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		return bucket.ReadParquet(file, info.Size(), name, o)
	}
	return bucket.ReadLengths(file, name, o)
}

func readTable(path string) (bucket.Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, opened(err)
	}
	defer f.Close()
	return bucket.ReadTable(f, path)
}

// writeWhole writes a file in one piece or not at all; "" and "-" are standard output.
func (a *app) writeWhole(path string, write func(f fileWriter) error) error {
	if path == "" || path == "-" {
		return write(a.out)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return opened(err)
	}
	defer f.Cleanup()
	if err := write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

type fileWriter interface{ Write([]byte) (int, error) }

// bucketScore is the rows of a score.
func bucketScore(s bucket.Score, bound float64) [][]string {
	rows := [][]string{
		{"epoch", seconds(s.EpochSeconds)}, {"lower bound", seconds(bound)},
		{"over the bound", fmt.Sprintf("%.2f%%", 100*(s.EpochSeconds/bound-1))}, {"steps", fmt.Sprint(s.Steps)},
		{"imbalance", fmt.Sprintf("%.4f (p99 %.4f)", s.Imbalance, s.ImbalanceP99)},
		{"padding", fmt.Sprintf("%.3f%%", 100*s.Padding)}, {"out of memory", fmt.Sprint(s.OutOfMemory)},
		{"lost", fmt.Sprint(s.Lost)}, {"repeated", fmt.Sprint(s.Repeated)},
	}
	if s.Skipped > 0 {
		rows = append(rows, []string{"skipped", fmt.Sprint(s.Skipped)})
	}
	return rows
}

var twoColumns = []column{{"", false}, {"", true}}

var errNoCommand = errors.New("no command: put it after --, for example: -- python3 step.py {length} {batch}; or give --recorded")
