// Package lengthfile reads the lengths of a data set from text and CSV.
package lengthfile

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"evenkeel/bucket"
	"evenkeel/internal/badinput"
)

// Options say how to read a file of lengths.
type Options bucket.Reading

// maxSamples is the largest number of samples: positions are 32 bits wide.
const maxSamples = math.MaxUint32

// Read reads one length per sample: one per line, or a CSV with or without a header, possibly gzipped. name is the file in errors. If no
// column is given, the file has one, and a header only if name ends in .csv or .csv.gz. Errors name the line and the field.
func Read(r io.Reader, name string, o Options) (bucket.Lengths, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, badinput.Errorf("%s: %v", name, err)
		}
		defer z.Close()
		b = bufio.NewReaderSize(z, 1<<20)
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	mark, _ := b.Peek(3)
	switch {
	case bytes.HasPrefix(mark, []byte{0xff, 0xfe}), bytes.HasPrefix(mark, []byte{0xfe, 0xff}):
		return nil, badinput.Errorf("%s: text in UTF-16; write it as UTF-8", name)
	case bytes.Equal(mark, []byte{0xef, 0xbb, 0xbf}):
		_, _ = b.Discard(3) // it was peeked
	}
	t := &textReader{b: b, rows: csv.NewReader(b), name: name, o: o} // rows reads from b itself, so both can go on in turn
	t.rows.FieldsPerRecord, t.rows.TrimLeadingSpace, t.rows.ReuseRecord = -1, true, true
	for {
		if len(t.out) > maxSamples {
			return nil, badinput.Errorf("%s: more than %d samples", name, uint32(maxSamples))
		}
		if t.line > 0 && len(t.columns) == 1 && t.columns[0] == 0 && (o.Scale == 0 || o.Scale == 1) {
			t.plain()
		}
		if err := t.row(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	if len(t.out) == 0 {
		return nil, badinput.Errorf("%s: no lengths", name)
	}
	return t.out, nil
}

// textReader is the state of reading a file.
type textReader struct {
	b       *bufio.Reader
	rows    *csv.Reader
	name    string
	o       Options
	columns []int
	out     []uint32
	line    int // the last one read, from 1
	plainly int // lines that rows did not see
}

// plain quickly reads the buffered lines of digits. It stops at any other line, which row then reads or refuses.
func (t *textReader) plain() {
	waiting, _ := t.b.Peek(t.b.Buffered())
	used, v, before := 0, uint32(0), len(t.out)
	for i, c := range waiting {
		if c >= '0' && c <= '9' && i-used < 8 {
			v = v*10 + uint32(c-'0')
			continue
		}
		if c != '\n' || v < 1 || v > bucket.MaxLength {
			break
		}
		t.out = append(t.out, v)
		used, v = i+1, 0
	}
	_, _ = t.b.Discard(used) // it waits in the buffer
	t.line += len(t.out) - before
	t.plainly += len(t.out) - before
}

// row reads one row, which has several lines if a quoted field has. At the end the error is io.EOF.
func (t *textReader) row() error {
	cells, err := t.rows.Read()
	if p := (*csv.ParseError)(nil); errors.As(err, &p) {
		return badinput.Errorf("%s:%d: quoted fields: %v", t.name, t.plainly+p.StartLine, p.Err)
	} else if errors.Is(err, io.EOF) {
		return err
	} else if err != nil {
		return fmt.Errorf("%s:%d: %w", t.name, t.line+1, err)
	}
	at, _ := t.rows.FieldPos(0)
	begin := t.plainly + at
	if begin > t.line+1 { // blank lines are allowed only at the end
		return badinput.Errorf("%s:%d: a blank line: every sample needs a length, or later ones get another's position", t.name, t.line+1)
	}
	t.line = begin
	for _, c := range cells {
		t.line += strings.Count(c, "\n")
	}
	if begin == 1 {
		header, err := t.choose(cells)
		if err != nil {
			return badinput.Errorf("%s:1: %v", t.name, err)
		}
		if header {
			return nil
		}
	}
	v, err := t.o.length(cells, t.columns)
	if err != nil {
		hint := ""
		if begin == 1 && len(cells) == 1 && !likeNumber(cells[0]) {
			hint = "; a header? name the file .csv, or give --column"
		}
		return badinput.Errorf("%s:%d: %v%s", t.name, begin, err, hint)
	}
	t.out = append(t.out, v)
	return nil
}

// choose finds the wanted columns in the first line, and returns whether that line is a header: if a column is given by its name, or if no wanted
// cell begins like a number and the file is a CSV, by its name or because a column was asked for.
func (t *textReader) choose(cells []string) (header bool, err error) {
	t.columns = []int{0}
	if t.o.Column != "" {
		t.columns = nil
		for _, want := range strings.Split(t.o.Column, ",") {
			found := slices.IndexFunc(cells, func(c string) bool { return strings.TrimSpace(c) == strings.TrimSpace(want) && !likeNumber(c) })
			if n, err := strconv.Atoi(want); found < 0 && err == nil && n >= 1 && n <= len(cells) {
				found = n - 1
			}
			if found < 0 {
				return false, fmt.Errorf("no column %q; there are: %s", want, strings.Join(cells, ","))
			}
			t.columns = append(t.columns, found)
		}
	}
	switch {
	case len(t.columns) > 2:
		return false, fmt.Errorf("column %q: at most two", t.o.Column)
	case len(cells) > 1 && t.o.Column == "":
		return false, fmt.Errorf("%d columns: name one (--column), by its header or by its number: %s", len(cells), strings.Join(cells, ","))
	}
	header = strings.HasSuffix(strings.TrimSuffix(t.name, ".gz"), ".csv") || t.o.Column != ""
	return header && !slices.ContainsFunc(t.columns, func(k int) bool { return likeNumber(cells[k]) }), nil
}

func likeNumber(cell string) bool {
	cell = strings.TrimSpace(cell)
	return cell != "" && strings.ContainsAny(cell[:1], "0123456789-+.")
}

// length reads one line.
func (o Options) length(cells []string, columns []int) (uint32, error) {
	total := 0.0
	for k, c := range columns {
		if c >= len(cells) {
			return 0, fmt.Errorf("field %d: missing", c+1)
		}
		v, err := o.number(strings.TrimSpace(cells[c]))
		switch {
		case err != nil:
			return 0, fmt.Errorf("field %d: %w", c+1, err)
		case o.Pair == "max":
			total = max(total, v)
		case o.Pair == "product" && k == 1:
			total *= v
		default:
			total += v
		}
	}
	switch {
	case !(total <= bucket.MaxLength):
		return 0, fmt.Errorf("length %.0f is above %d", total, bucket.MaxLength)
	case total < 1:
		return 0, errors.New("length 0 is below 1")
	}
	return uint32(total), nil
}

// number reads a whole number, as 512, 512.0 or 1e3, or any with a scale. One of a pair may be 0: an image without text.
func (o Options) number(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	whole := v == math.Trunc(v)
	if v *= cmp.Or(o.Scale, 1); o.Scale != 0 {
		v, whole = math.Ceil(v*(1-1e-12)), true // 1.1 s are 110 frames: a product of binary fractions may lie just above
	}
	switch {
	case err != nil || math.IsNaN(v):
		return 0, fmt.Errorf("length %q is not a number", s)
	case !whole:
		return 0, fmt.Errorf("length %q is not a whole number; give a scale (--scale 100 makes frames of 10 ms from seconds)", s)
	case v < 0:
		return 0, fmt.Errorf("length %s is below 0", s)
	}
	return v, nil
}

// check refuses invalid options.
func (o Options) check() error {
	if o.Scale < 0 || math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0) {
		return badinput.Errorf("scale %v: must be above 0", o.Scale)
	}
	if o.Pair != "" && o.Pair != "sum" && o.Pair != "max" && o.Pair != "product" {
		return badinput.Errorf("pair %q: must be sum, max or product", o.Pair)
	}
	return nil
}
