package profile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/internal/badinput"
)

// Limits of a profile file.
const (
	maxFileBytes = 16 << 20
	maxRows      = 200_000
	maxProblems  = 20 // a FileError stops there
)

// header is the first line of every profile file, exactly.
const header = "device,workload,micro_batch,seconds,peak_bytes"

var columns = strings.Split(header, ",")

// ErrFormat is wrapped by every error that lies in the content of a profile file.
var ErrFormat = badinput.New("profile: invalid file")

// Problem is one fault in a file.
type Problem struct {
	Line  int    `json:"line"`            // 1 is the first line; 0 = the file as a whole
	Field string `json:"field,omitempty"` // column, where one is at fault
	Text  string `json:"text"`            // what is wrong and what to do
}

// FileError lists the faults of one file, at most maxProblems of them. It wraps ErrFormat.
type FileError struct {
	File     string    `json:"file"`
	Problems []Problem `json:"problems"`
	More     bool      `json:"more"` // reading stopped at maxProblems
}

func (e *FileError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		if p.Field != "" {
			fmt.Fprintf(&b, ": %s", p.Field)
		}
		fmt.Fprintf(&b, ": %s", p.Text)
	}
	if e.More {
		fmt.Fprintf(&b, "\n%s: only the first %d problems are listed", e.File, maxProblems)
	}
	return b.String()
}

func (e *FileError) Unwrap() error { return ErrFormat }

type pair struct{ device, workload string }

// parser reads one file. Rows of different series may be mixed; those of one series
// must come with increasing micro-batch.
type parser struct {
	err    FileError
	points map[pair][]Point
	order  []pair
}

// add notes a problem and reports whether there is room for another.
func (r *parser) add(line int, field, format string, args ...any) bool {
	if len(r.err.Problems) == maxProblems {
		r.err.More = true
		return false
	}
	r.err.Problems = append(r.err.Problems, Problem{line, field, fmt.Sprintf(format, args...)})
	return true
}

// parse returns the file's profiles in the order of their first rows.
func parse(name string, in io.Reader) ([]*Profile, error) {
	r := parser{err: FileError{File: name}, points: map[pair][]Point{}}
	data, err := io.ReadAll(io.LimitReader(in, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFileBytes {
		r.add(0, "", "larger than %d MiB: split it by device", maxFileBytes>>20)
		return nil, &r.err
	}
	r.rows(data)
	if len(r.err.Problems) > 0 {
		return nil, &r.err
	}
	out := make([]*Profile, 0, len(r.order))
	for _, k := range r.order {
		p := &Profile{Device: k.device, Workload: k.workload, Points: r.points[k], Source: name}
		p.build()
		out = append(out, p)
	}
	return out, nil
}

// bom is what some spreadsheets write before UTF-8.
var bom = []byte("\xef\xbb\xbf")

func (r *parser) rows(data []byte) {
	in := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, bom)))
	in.FieldsPerRecord = -1
	in.ReuseRecord = true
	for n := 0; ; n++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				r.add(0, "", "empty: the first line must be %s", header)
			} else if n == 1 {
				r.add(0, "", "holds no measurement after the header")
			}
			return
		}
		if err != nil {
			line, text := 0, err.Error()
			if pe := (*csv.ParseError)(nil); errors.As(err, &pe) {
				line, text = pe.Line, pe.Err.Error()
			}
			r.add(line, "", "not CSV: %s", text)
			return // where the next row starts is unknown
		}
		line, _ := in.FieldPos(0)
		switch {
		case n == 0:
			if !r.header(row) {
				return
			}
		case n > maxRows:
			r.add(line, "", "more than %d measurements: split the file by device", maxRows)
			return
		case !r.row(line, row):
			return
		}
	}
}

func (r *parser) header(row []string) bool {
	if strings.Join(row, ",") == header {
		return true
	}
	for _, c := range columns {
		if !slices.Contains(row, c) {
			r.add(1, c, "column is missing: the first line must be %s", header)
		}
	}
	if len(r.err.Problems) == 0 {
		r.add(1, "", "columns are in another order or doubled: the first line must be %s", header)
	}
	return false
}

// row reads one measurement and reports whether to go on.
func (r *parser) row(line int, row []string) bool {
	if len(row) != len(columns) {
		return r.add(line, "", "%d fields, want the %d of the header (peak_bytes may be empty, its comma may not be left out)", len(row), len(columns))
	}
	before := len(r.err.Problems)
	bad := func(i int, format string, args ...any) { r.add(line, columns[i], format, args...) }
	for i := range 2 {
		if text := nameProblem(row[i]); text != "" {
			bad(i, "%s", text)
		}
	}
	q := readPoint(row, bad)
	if len(r.err.Problems) > before || r.err.More {
		return !r.err.More
	}
	k := pair{strings.Clone(row[0]), strings.Clone(row[1])}
	have := r.points[k]
	if n := len(have); n > 0 && q.MicroBatch <= have[n-1].MicroBatch {
		what := fmt.Sprintf("comes after %d", have[n-1].MicroBatch)
		if q.MicroBatch == have[n-1].MicroBatch {
			what = "appears twice"
		}
		return r.add(line, "micro_batch", "%d %s for %s on %s: sort the rows and keep one per micro-batch",
			q.MicroBatch, what, k.workload, k.device)
	} else if n == maxPoints {
		return r.add(line, "", "more than %d micro-batches for %s on %s", maxPoints, k.workload, k.device)
	} else if n == 0 {
		r.order = append(r.order, k)
	}
	r.points[k] = append(have, q)
	return true
}

// readPoint reads the columns of a measurement; bad notes a fault in a column.
func readPoint(row []string, bad func(column int, format string, args ...any)) Point {
	var q Point
	var err error
	if q.MicroBatch, err = strconv.Atoi(row[2]); err != nil {
		bad(2, "%q is not a whole number of samples", clip(row[2]))
	} else if q.MicroBatch < 1 || q.MicroBatch > maxMicroBatch {
		bad(2, "%d is outside 1 to %d samples", q.MicroBatch, maxMicroBatch)
	}
	if q.Seconds, err = strconv.ParseFloat(row[3], 64); math.IsNaN(q.Seconds) || math.IsInf(q.Seconds, 0) || err != nil {
		bad(3, "%q is not a finite number of seconds", clip(row[3]))
	} else if q.Seconds <= 0 {
		bad(3, "%s is not above zero: give the measured seconds of forward and backward, or leave the row out", clip(row[3]))
	} else if q.Seconds < minSeconds || q.Seconds > maxSeconds {
		bad(3, "%s is outside %g to %g: the unit is seconds", clip(row[3]), float64(minSeconds), float64(maxSeconds))
	}
	if row[4] == "" {
		return q
	}
	if q.PeakBytes, err = strconv.ParseInt(row[4], 10, 64); err != nil {
		bad(4, "%q is not a whole number of bytes: leave it empty where it was not measured", clip(row[4]))
	} else if q.PeakBytes < 0 || q.PeakBytes > maxPeakBytes {
		bad(4, "%d is outside 0 to %d bytes: leave it empty where it was not measured", q.PeakBytes, int64(maxPeakBytes))
	}
	return q
}

// nameProblem says what is wrong with a device's or workload's name, "" if nothing.
func nameProblem(name string) string {
	if name == "" {
		return "is empty"
	}
	if len(name) > maxName {
		return fmt.Sprintf("%q is longer than %d bytes", clip(name), maxName)
	}
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '.' && c != '_') {
			return fmt.Sprintf("%q may hold letters, digits and, not first, - . _ only", clip(name))
		}
	}
	return ""
}

// clip shortens text of a file for a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
