package bucket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
)

// ReadParquetLengths reads one column, or two as a pair, of a Parquet file. Name is what
// errors call the file. Errors are of ErrInput and name column and row.
func ReadParquetLengths(r io.ReaderAt, size int64, name string, o LengthsOptions) (out Lengths, err error) {
	defer recovered(name, &err)
	if err := o.check(); err != nil {
		return nil, err
	}
	f, err := openParquet(r, size, name)
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
	if f.NumRows() > maxSamples {
		return nil, input.Errorf("%s: more than %d samples", name, uint32(maxSamples))
	}
	var parts []Lengths
	for _, w := range wanted {
		part, err := o.namedColumn(f, names, w)
		if err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
		parts = append(parts, part)
	}
	if len(parts[0]) == 0 {
		return nil, input.Errorf("%s: no lengths", name)
	}
	if len(parts) == 2 {
		if err := o.pair(parts[0], parts[1]); err != nil {
			return nil, input.Errorf("%s: %v", name, err)
		}
	}
	return parts[0], nil
}

// namedColumn reads a column by its name, or its number from 1.
func (o LengthsOptions) namedColumn(f *parquet.File, names []string, wanted string) (Lengths, error) {
	c := f.Root().Column(strings.TrimSpace(wanted))
	if n, err := strconv.Atoi(wanted); c == nil && err == nil && n >= 1 && n <= len(names) {
		c = f.Root().Columns()[n-1]
	}
	if c == nil || !c.Leaf() || c.Repeated() {
		return nil, fmt.Errorf("no column %q of numbers; there are: %s", wanted, strings.Join(names, ","))
	}
	l, err := o.parquetColumn(c)
	if err != nil {
		return nil, fmt.Errorf("column %s, %w", c.Name(), err)
	}
	return l, nil
}

// pair joins the lengths of sources and targets, overwriting the sources.
func (o LengthsOptions) pair(sources, targets Lengths) error {
	if len(targets) < len(sources) {
		return errors.New("the columns differ in length")
	}
	for i, v := range targets[:len(sources)] {
		if o.Pair == "max" {
			v = max(sources[i], v)
		} else {
			v += sources[i]
		}
		if v > MaxLength {
			return fmt.Errorf("row %d: length %d is above %d", i+1, v, MaxLength)
		}
		sources[i] = v
	}
	return nil
}

// openParquet looks at the footer first: the library reserves what it claims.
func openParquet(r io.ReaderAt, size int64, name string) (*parquet.File, error) {
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

func (o LengthsOptions) parquetColumn(c *parquet.Column) (Lengths, error) {
	pages := c.Pages()
	defer pages.Close()
	var out Lengths
	values := make([]parquet.Value, 4096)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(out)+1, err)
		}
		for r := page.Values(); ; {
			n, err := r.ReadValues(values)
			for _, v := range values[:n] {
				x, bad := o.parquetValue(v)
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

func (o LengthsOptions) parquetValue(v parquet.Value) (uint32, error) {
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
	if o.Scale != 0 {
		x = math.Ceil(x * o.Scale)
	}
	if x != math.Trunc(x) {
		return 0, fmt.Errorf("length %v is not a whole number; give a scale", x)
	}
	if !(x >= 1 && x <= MaxLength) {
		return 0, fmt.Errorf("length %v: must be 1 to %d", x, MaxLength)
	}
	return uint32(x), nil
}
