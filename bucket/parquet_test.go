package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/parquet-go/parquet-go"
)

func parquetFile(t testing.TB) []byte {
	type row struct {
		A int32   `parquet:"a"`
		B int64   `parquet:"b"`
		S float64 `parquet:"s"`
	}
	var out bytes.Buffer
	if err := parquet.Write(&out, []row{{1, 5, 1.231}, {2, 6, 2}}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadParquet(t *testing.T) {
	text := parquetFile(t)
	for _, c := range []struct {
		o    LengthsOptions
		want string
	}{
		{LengthsOptions{Column: "b"}, "[5 6]"}, {LengthsOptions{}, "[1 2]"}, {LengthsOptions{Column: "a,b"}, "[6 8]"}, {LengthsOptions{Column: "s", Scale: 100}, "[124 200]"},
	} {
		l, err := ReadParquet(bytes.NewReader(text), int64(len(text)), "f", c.o)
		if got := fmt.Sprint([]uint32(l)); err != nil || got != c.want {
			t.Errorf("%+v: got %s, %v, want %s", c.o, got, err, c.want)
		}
	}
	if _, err := ReadParquet(bytes.NewReader(text), int64(len(text)), "f", LengthsOptions{Column: "x"}); !errors.Is(err, ErrInput) {
		t.Errorf("no such column: got %v", err)
	}
}

func FuzzReadParquet(f *testing.F) {
	f.Add(parquetFile(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := ReadParquet(bytes.NewReader(text), int64(len(text)), "f", LengthsOptions{}); err != nil && !errors.Is(err, ErrInput) {
			t.Errorf("not marked as bad input: %v", err)
		}
	})
}
