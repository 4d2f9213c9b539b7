package bucket

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// ReadParquet reads lengths from one column, or two, of a Parquet file of size bytes.
// Rows with a null are an error.
func ReadParquet(r io.ReaderAt, size int64, name string, o LengthsOptions) (out Lengths, err error) {
	// The library panics on some damaged files.
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, badf("%s: damaged Parquet file: %v", name, p)
		}
	}()
	f, err := parquet.OpenFile(r, size)
	if err != nil {
		return nil, badf("%s: no Parquet file: %v", name, err)
	}
	columns := strings.Split(o.Column, ",")
	if o.Column == "" && len(f.Schema().Columns()) > 0 {
		columns = []string{f.Schema().Columns()[0][0]}
	}
	if len(columns) > 2 {
		return nil, badf("%s: column %q: at most two, a source and a target", name, o.Column)
	}
	for k, c := range columns {
		leaf, ok := f.Schema().Lookup(c)
		if !ok {
			return nil, badf("%s: no column %q", name, c)
		}
		row := 0
		err := eachValue(f, leaf.ColumnIndex, func(v parquet.Value) error {
			text := v.String()
			if v.Kind() == parquet.Float || v.Kind() == parquet.Double {
				text = strconv.FormatFloat(v.Double(), 'g', -1, 64)
				if v.Kind() == parquet.Float {
					text = strconv.FormatFloat(float64(v.Float()), 'g', -1, 32)
				}
			}
			n, err := o.number(text)
			if err != nil {
				return badf("%s: row %d, column %q: %v", name, row+1, c, err)
			}
			if k == 0 {
				out = append(out, uint32(n))
			} else if row >= len(out) {
				return badf("%s: column %q is longer than the one before", name, c)
			} else if o.Pair == "max" {
				out[row] = max(out[row], uint32(n))
			} else if out[row] += uint32(n); out[row] > MaxLength {
				return badf("%s: row %d: length %d is above %d", name, row+1, out[row], MaxLength)
			}
			row++
			return nil
		})
		if err != nil {
			return nil, err
		}
		if row != len(out) {
			return nil, badf("%s: column %q is shorter than the one before", name, c)
		}
	}
	if len(out) == 0 {
		return nil, badf("%s: no lengths", name)
	}
	return out, nil
}

func eachValue(f *parquet.File, column int, do func(parquet.Value) error) error {
	buf := make([]parquet.Value, 4096)
	for _, g := range f.RowGroups() {
		pages := g.ColumnChunks()[column].Pages()
		defer pages.Close()
		for {
			page, err := pages.ReadPage()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return badf("Parquet: %v", err)
			}
			values := page.Values()
			for {
				n, err := values.ReadValues(buf)
				for _, v := range buf[:n] {
					if err := do(v); err != nil {
						return err
					}
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return badf("Parquet: %v", err)
				}
			}
		}
	}
	return nil
}
