package bucket

import (
	"io"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/internal/lengthfile"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// ErrInput marks every error that is the fault of a file or a setting.
var ErrInput = input.Err

// MaxLength is the largest length of a sample. A histogram has an entry for each length
// up to the longest, so this bounds memory.
const MaxLength = stepcost.MaxLength

// Lengths is one length per sample, 1 to MaxLength, in the data set's order: 4 bytes a
// sample.
type Lengths []uint32

// LengthsOptions say how to read a file of lengths.
type LengthsOptions struct {
	// Column is the name of a CSV or Parquet column, or its number from 1. "" is the
	// first. Two joined by a comma are a sample's source and target.
	Column string
	// Pair says what two columns make of a sample: "sum" (also for ""), where the model
	// reads them as one sequence, or "max", where both are padded to the longer. ReadPairs keeps both.
	Pair string
	// Scale multiplies each number, which is then rounded up: 100 for frames of 10 ms
	// from seconds. 0 is 1, and then a fraction is an error.
	Scale float64
	// Bytes is the size of the text, if known: memory is then sized once. 0: not known.
	Bytes int64
	// Chosen, if given, is told which columns are read, by name or number, and of how many.
	Chosen func(taken []string, of int)
}

// ReadLengths reads lengths as text: one per line, or a CSV with or without a header, each
// of them possibly gzipped. Name is what errors call the file; without a column asked for, a
// file without commas is a CSV, and may have a header, only if it ends in .csv or .csv.gz.
// Errors are of ErrInput, with the line and the field, or the reader's own.
func ReadLengths(r io.Reader, name string, o LengthsOptions) (Lengths, error) {
	l, _, err := lengthfile.Text(r, name, lengthfile.Options(o), false)
	return l, err
}

// ReadParquetLengths reads one column, or two as a pair, of a Parquet file. Name is what
// errors call the file. Errors are of ErrInput and name column and row.
func ReadParquetLengths(r io.ReaderAt, size int64, name string, o LengthsOptions) (Lengths, error) {
	parts, err := lengthfile.Parquet(r, size, name, lengthfile.Options(o))
	if err != nil {
		return nil, err
	}
	if len(parts) == 2 {
		if err := lengthfile.Options(o).Join(parts[0], parts[1]); err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
	}
	return parts[0], nil
}
