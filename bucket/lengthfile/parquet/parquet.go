// Package parquet reads the lengths of a data set from Parquet files.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/lengthfile"
	"github.com/evenkeel/evenkeel/bucket/paired"
)

// Read reads one column, or two as a pair. Name is what errors call the file. Errors are of bucket.ErrInput and name column and row.
func Read(r io.ReaderAt, size int64, name string, o lengthfile.Options) (bucket.Lengths, error) {
	parts, err := columns(r, size, name, o)
	if err != nil {
		return nil, err
	}
	if len(parts) == 2 {
		if err := join(o.Pair, parts[0], parts[1]); err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
	}
	return parts[0], nil
}

// ReadPairs reads two columns, a source and a target per sample.
func ReadPairs(r io.ReaderAt, size int64, name string, o lengthfile.Options) (*paired.Pairs, error) {
	o, err := o.Apart(name)
	if err != nil {
		return nil, err
	}
	parts, err := columns(r, size, name, o)
	if err != nil {
		return nil, err
	}
	return lengthfile.Join(name, parts[0], parts[1])
}

// columns reads the wanted columns, one or two.
func columns(r io.ReaderAt, size int64, name string, o lengthfile.Options) (parts [][]uint32, err error) {
	defer recovered(name, &err)
	if err := o.Check(); err != nil {
		return nil, err
	}
	f, err := open(r, size, name)
	if err != nil {
		return nil, err
	}
	all := f.Root().Columns()
	var names []string
	for _, c := range all {
		names = append(names, c.Name())
	}
	if len(all) == 0 {
		return nil, input.Errorf("%s: no columns", name)
	}
	wanted := []string{names[0]}
	if o.Column != "" {
		wanted = strings.Split(o.Column, ",")
	}
	if len(wanted) > 2 {
		return nil, input.Errorf("%s: column %q: at most two, a source and a target", name, o.Column)
	}
	if f.NumRows() > lengthfile.MaxSamples {
		return nil, input.Errorf("%s: more than %d samples", name, uint32(lengthfile.MaxSamples))
	}
	for _, w := range wanted {
		part, err := namedColumn(f, names, w, o.Scale)
		if err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
		parts = append(parts, part)
	}
	if len(parts[0]) == 0 {
		return nil, input.Errorf("%s: no lengths", name)
	}
	if o.Chosen != nil {
		o.Chosen(wanted, len(all))
	}
	return parts, nil
}

// namedColumn reads a column by its name, or its number from 1.
func namedColumn(f *parquet.File, names []string, wanted string, scale float64) ([]uint32, error) {
	c := f.Root().Column(strings.TrimSpace(wanted))
	if n, err := strconv.Atoi(wanted); c == nil && err == nil && n >= 1 && n <= len(names) {
		c = f.Root().Columns()[n-1]
	}
	if c == nil || !c.Leaf() || c.Repeated() {
		return nil, fmt.Errorf("no column %q of numbers; there are: %s", wanted, strings.Join(names, ","))
	}
	l, err := values(c, scale)
	if err != nil {
		return nil, fmt.Errorf("column %s, %w", c.Name(), err)
	}
	return l, nil
}

// join joins the lengths of sources and targets, overwriting the sources.
func join(pair string, sources, targets []uint32) error {
	if len(targets) < len(sources) {
		return errors.New("the columns differ in length")
	}
	for i, v := range targets[:len(sources)] {
		if pair == "max" {
			v = max(sources[i], v)
		} else {
			v += sources[i]
		}
		if v > bucket.MaxLength {
			return fmt.Errorf("row %d: length %d is above %d", i+1, v, bucket.MaxLength)
		}
		sources[i] = v
	}
	return nil
}

// open opens a Parquet file. It looks at the footer first: the library reserves what it claims.
func open(r io.ReaderAt, size int64, name string) (*parquet.File, error) {
	var end [8]byte
	if size < 12 {
		return nil, input.Errorf("%s: not a Parquet file: %d bytes", name, size)
	}
	if _, err := r.ReadAt(end[:], size-8); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if n := int64(binary.LittleEndian.Uint32(end[:4])); n > size-12 {
		return nil, input.Errorf("%s: not a Parquet file: a footer of %d bytes in a file of %d", name, n, size)
	}
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, input.Errorf("%s: not a Parquet file: %v", name, err)
	}
	return f, nil
}

func values(c *parquet.Column, scale float64) ([]uint32, error) {
	pages := c.Pages()
	defer pages.Close()
	var out []uint32
	buffer := make([]parquet.Value, 4096)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(out)+1, err)
		}
		for r := page.Values(); ; {
			n, err := r.ReadValues(buffer)
			for _, v := range buffer[:n] {
				x, bad := value(v, scale)
				if bad != nil {
					return nil, fmt.Errorf("row %d: %w", len(out)+1, bad)
				}
				out = append(out, x)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("row %d: %w", len(out)+1, err)
			}
		}
		parquet.Release(page)
	}
}

func value(v parquet.Value, scale float64) (uint32, error) {
	var x float64
	switch {
	case v.IsNull():
		return 0, errors.New("length is missing")
	case v.Kind() == parquet.Int32:
		x = float64(v.Int32())
	case v.Kind() == parquet.Int64:
		x = float64(v.Int64())
	case v.Kind() == parquet.Float:
		x = float64(v.Float())
	case v.Kind() == parquet.Double:
		x = v.Double()
	default:
		return 0, fmt.Errorf("length of kind %s is not a number", v.Kind())
	}
	if scale != 0 {
		x = math.Ceil(x * scale)
	}
	if x != math.Trunc(x) {
		return 0, fmt.Errorf("length %v is not a whole number; give a scale (--scale)", x)
	}
	if !(x >= 1 && x <= bucket.MaxLength) {
		return 0, fmt.Errorf("length %v: must be 1 to %d", x, bucket.MaxLength)
	}
	return uint32(x), nil
}

// recovered makes, deferred, an error of a panic: the library panics on some damaged files.
func recovered(name string, err *error) {
	if p := recover(); p != nil {
		*err = input.Errorf("%s: damaged Parquet: %v", name, p)
	}
}
