// Package lengthfile reads the lengths of a data set from text and CSV.
//
// Read gives one length per sample, ReadPairs a source and a target, for package paired.
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
	"evenkeel/bucket/internal/input"
	"evenkeel/bucket/paired"
)

// Options say how to read a file of lengths.
type Options struct {
	// Column is the name of a CSV column, or its number from 1; "": the first column, or for pairs the first two. Two columns, joined by a
	// comma, are the source and the target of a sample.
	Column string
	// Pair says how Read combines two columns: "sum" (or ""), if the model reads both as one sequence, "max", if both are padded to the
	// longer one, or "product", the patches of an image. ReadPairs keeps both.
	Pair string
	// Scale multiplies each number, which is then rounded up: 100 for frames of 10 ms
	// from seconds. 0 is 1, and then a fraction is an error.
	Scale float64
	// Bytes is the size of the text, with which memory is allocated once; 0: not known.
	Bytes int64
	// Chosen, if given, is called with the columns that are read, by name or number, and the number of all columns.
	Chosen func(taken []string, of int)
}

// maxSamples is the largest number of samples: positions are 32 bits wide.
const maxSamples = math.MaxUint32

// sizing is the number of samples after which the number of all samples is estimated.
const sizing = 1 << 16

// Read reads one length per sample: one per line, or a CSV with or without a header, possibly gzipped. name is the file in errors. If no
// column is given and there are no commas, the file may have a header only if name ends in .csv or .csv.gz. Errors are of bucket.ErrInput,
// with the line and the field, or those of r.
func Read(r io.Reader, name string, o Options) (bucket.Lengths, error) {
	l, _, err := text(r, name, o, false)
	return l, err
}

// ReadPairs reads a source and a target per sample as Read reads one length.
func ReadPairs(r io.Reader, name string, o Options) (*paired.Pairs, error) {
	o.Pair, o.Column = "", cmp.Or(o.Column, "1,2")
	if n := strings.Count(o.Column, ",") + 1; n != 2 {
		return nil, input.Errorf("%s: column %q: source and target apart take two columns, as source,target; these are %d", name, o.Column, n)
	}
	sources, targets, err := text(r, name, o, true)
	if err != nil {
		return nil, err
	}
	p, err := paired.New(sources, targets)
	if err != nil {
		return nil, input.Errorf("%s: %v", name, err)
	}
	return p, nil
}

// text reads one length per sample, or two apart.
func text(r io.Reader, name string, o Options, apart bool) (first, second []uint32, err error) {
	b := bufio.NewReaderSize(r, 1<<20)
	if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, nil, input.Errorf("%s: %v", name, err)
		}
		defer z.Close()
		b = bufio.NewReaderSize(z, 1<<20)
	}
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	if err := skipMark(b, name); err != nil {
		return nil, nil, err
	}
	t := &textReader{b: b, rows: csv.NewReader(b), name: name, o: o, apart: apart} // rows reads from b itself, so both can go on in turn
	t.rows.FieldsPerRecord, t.rows.TrimLeadingSpace, t.rows.ReuseRecord = -1, true, true
	for {
		if t.line > 0 && t.blank == 0 && len(t.columns) == 1 && t.columns[0] == 0 && o.Scale == 0 {
			t.plain()
		}
		if err := t.row(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
	}
	if len(t.out) == 0 {
		return nil, nil, input.Errorf("%s: no lengths", name)
	}
	return t.out, t.second, nil
}

// skipMark passes over a byte order mark of UTF-8; other encodings are an error.
func skipMark(b *bufio.Reader, name string) error {
	mark, _ := b.Peek(3)
	switch {
	case bytes.Equal(mark, []byte{0xef, 0xbb, 0xbf}):
		_, _ = b.Discard(3) // it was peeked
	case len(mark) >= 2 && (mark[0] == 0xff && mark[1] == 0xfe || mark[0] == 0xfe && mark[1] == 0xff):
		return input.Errorf("%s: text in UTF-16; write it as UTF-8", name)
	}
	return nil
}

// textReader is the state of reading a file.
type textReader struct {
	b       *bufio.Reader
	rows    *csv.Reader
	name    string
	o       Options
	columns []int
	out     []uint32
	apart   bool // second gets the other column
	second  []uint32
	line    int   // the last one read, from 1
	plainly int   // lines that rows did not see
	blank   int   // the first blank line since the last length; 0: none
	read    int64 // bytes that rows did not see
}

// plain quickly reads the buffered lines of digits. It stops at any other line, which row then reads or refuses.
func (t *textReader) plain() {
	limit := sizing
	if len(t.out) >= sizing {
		limit = maxSamples
	}
	waiting, _ := t.b.Peek(t.b.Buffered())
	used, v, before := 0, uint32(0), len(t.out)
	for i, c := range waiting {
		if c >= '0' && c <= '9' && i-used < 8 {
			v = v*10 + uint32(c-'0')
			continue
		}
		if c != '\n' || v < 1 || v > bucket.MaxLength || len(t.out) == limit {
			break
		}
		t.out = append(t.out, v)
		used, v = i+1, 0
	}
	_, _ = t.b.Discard(used) // it waits in the buffer
	t.read += int64(used)
	t.line += len(t.out) - before
	t.plainly += len(t.out) - before
}

// row reads one row, which has several lines if a quoted field has. At the end the error is io.EOF.
func (t *textReader) row() error {
	cells, err := t.rows.Read()
	if p := (*csv.ParseError)(nil); errors.As(err, &p) {
		return input.Errorf("%s:%d: quoted fields: %v", t.name, t.plainly+p.StartLine, p.Err)
	} else if errors.Is(err, io.EOF) {
		return err
	} else if err != nil {
		return fmt.Errorf("%s:%d: %w", t.name, t.line+1, err)
	}
	at, _ := t.rows.FieldPos(0)
	begin := t.plainly + at
	if len(cells) == 1 && strings.TrimSpace(cells[0]) == "" || begin > t.line+1 {
		t.blank = cmp.Or(t.blank, t.line+1)
	}
	t.line = begin
	for _, c := range cells {
		t.line += strings.Count(c, "\n")
	}
	if len(cells) == 1 && strings.TrimSpace(cells[0]) == "" {
		return nil
	}
	if t.blank > 0 { // blank lines are allowed only at the end
		return input.Errorf("%s:%d: a blank line: every sample needs a length, or later ones get another's position", t.name, t.blank)
	}
	if read := t.read + t.rows.InputOffset(); len(t.out) == sizing && cap(t.out) < 2*sizing && t.o.Bytes > read {
		t.out = slices.Grow(t.out, int(min(float64(t.o.Bytes-read)/float64(read)*sizing*1.01, maxSamples)))
	}
	if begin == 1 {
		var header bool
		if t.columns, header, err = t.o.columns(t.name, cells); err != nil {
			return input.Errorf("%s:1: %v", t.name, err)
		}
		t.tell(cells, header)
		if header {
			return nil
		}
	}
	v, w, err := t.o.lengths(cells, t.columns, t.apart)
	if err != nil {
		return input.Errorf("%s:%d: %v%s", t.name, begin, err, t.hint(begin, cells))
	}
	if len(t.out) == maxSamples {
		return input.Errorf("%s:%d: more than %d samples", t.name, begin, uint32(maxSamples))
	}
	if t.out = append(t.out, v); t.apart {
		t.second = append(t.second, w)
	}
	return nil
}

// hint says that a word in the first line, where a length should be, may be a header.
func (t *textReader) hint(line int, cells []string) string {
	word := strings.TrimSpace(cells[0])
	if line > 1 || t.o.Column != "" || len(cells) > 1 || word == "" || likeNumber(word) {
		return ""
	}
	if strings.ContainsAny(word, " \t'") {
		word = strconv.Quote(word)
	}
	return fmt.Sprintf("; a header? name the file .csv, or give --column %s", word)
}

// tell says which columns are read.
func (t *textReader) tell(cells []string, header bool) {
	if t.o.Chosen == nil {
		return
	}
	var taken []string
	for _, k := range t.columns {
		name := strconv.Itoa(k + 1)
		if header {
			name = strings.TrimSpace(cells[k])
		}
		taken = append(taken, name)
	}
	t.o.Chosen(taken, len(cells))
}

// columns finds the wanted columns in the first line, and whether that line is a header. It is one if it has a cell that is not a number, and
// if the file is a CSV: by its name, by a comma, or because a column was given. Else a word instead of the first length is an error. A cell
// that begins like a number is a bad number, not a header, unless the column was given by name.
func (o Options) columns(name string, cells []string) (at []int, header bool, err error) {
	first := strings.Join(cells, ",")
	for _, c := range cells {
		if _, err := strconv.ParseFloat(strings.TrimSpace(c), 64); err != nil {
			header = first != ""
		}
	}
	if o.Column == "" {
		csv := strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".csv") || len(cells) > 1
		return []int{0}, header && csv && !likeNumber(cells[0]), nil
	}
	wanted := strings.Split(o.Column, ",")
	if len(wanted) > 2 {
		return nil, header, fmt.Errorf("column %q: at most two, a source and a target", o.Column)
	}
	if at := numbered(wanted, len(cells)); slices.ContainsFunc(at, func(k int) bool { return likeNumber(cells[k]) }) {
		return at, false, nil
	}
	for _, want := range wanted {
		found := -1
		for k, c := range cells {
			if header && strings.TrimSpace(c) == strings.TrimSpace(want) {
				found = k
			}
		}
		if n, err := strconv.Atoi(want); found < 0 && err == nil && n >= 1 && n <= len(cells) {
			found = n - 1
		}
		if found < 0 {
			return nil, header, fmt.Errorf("no column %q; there are: %s", want, first)
		}
		at = append(at, found)
	}
	return at, header, nil
}

// numbered are the wanted columns if all are given by number, else nil.
func numbered(wanted []string, cells int) (at []int) {
	for _, want := range wanted {
		n, err := strconv.Atoi(want)
		if err != nil || n < 1 || n > cells {
			return nil
		}
		at = append(at, n-1)
	}
	return at
}

func likeNumber(cell string) bool {
	cell = strings.TrimSpace(cell)
	return cell != "" && strings.ContainsAny(cell[:1], "0123456789-+.")
}

// lengths reads one line: one length, or two apart.
func (o Options) lengths(cells []string, columns []int, apart bool) (first, second uint32, err error) {
	var total uint64
	for k, c := range columns {
		if c >= len(cells) {
			return 0, 0, fmt.Errorf("field %d: missing", c+1)
		}
		least := 1 // a pair of one sequence may lack one of both: an image without text
		if len(columns) > 1 && !apart {
			least = 0
		}
		v, err := o.number(strings.TrimSpace(cells[c]), least)
		if err != nil {
			return 0, 0, fmt.Errorf("field %d: %w", c+1, err)
		}
		switch {
		case apart && k == 1:
			second = uint32(v)
		case o.Pair == "max":
			total = max(total, v)
		case o.Pair == "product" && k == 1:
			total *= v
		default:
			total += v
		}
	}
	switch {
	case total > bucket.MaxLength:
		return 0, 0, fmt.Errorf("length %d is above %d", total, bucket.MaxLength)
	case total < 1:
		return 0, 0, errors.New("length 0 is below 1")
	}
	return uint32(total), second, nil
}

func (o Options) number(s string, least int) (uint64, error) {
	if o.Scale == 0 {
		v, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			return wholeFloat(s, least)
		case v < int64(least):
			return 0, fmt.Errorf("length %d is below %d", v, least)
		case v > bucket.MaxLength:
			return 0, fmt.Errorf("length %d is above %d", v, bucket.MaxLength)
		}
		return uint64(v), nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) {
		return 0, fmt.Errorf("length %q is not a number", s)
	}
	if v *= o.Scale; !(v > 0 && v <= bucket.MaxLength) && (v != 0 || least > 0) {
		return 0, fmt.Errorf("length %s times %v is not between 0 and %d", s, o.Scale, bucket.MaxLength)
	}
	return uint64(math.Ceil(v * (1 - 1e-12))), nil // 1.1 s are 110 frames: a product of binary fractions may lie just above
}

// wholeFloat reads whole numbers as 1e3 and 512.0.
func wholeFloat(s string, least int) (uint64, error) {
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsNaN(v):
		return 0, fmt.Errorf("length %q is not a number", s)
	case v > bucket.MaxLength:
		return 0, fmt.Errorf("length %s is above %d", s, bucket.MaxLength)
	case v != math.Trunc(v):
		return 0, fmt.Errorf("length %q is not a whole number; give a scale (--scale 100 makes frames of 10 ms from seconds)", s)
	case v < float64(least):
		return 0, fmt.Errorf("length %s is below %d", s, least)
	}
	return uint64(v), nil
}

// check refuses invalid options.
func (o Options) check() error {
	if o.Scale < 0 || math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0) {
		return input.Errorf("scale %v: must be above 0", o.Scale)
	}
	if o.Pair != "" && o.Pair != "sum" && o.Pair != "max" && o.Pair != "product" {
		return input.Errorf("pair %q: must be sum, max or product", o.Pair)
	}
	return nil
}
