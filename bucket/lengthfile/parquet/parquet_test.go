package parquet

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	parquetgo "github.com/parquet-go/parquet-go"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/lengthfile"
)

func TestParquetLengths(t *testing.T) {
	type row struct {
		A int32   `parquet:"a"`
		S float64 `parquet:"s"`
	}
	var b bytes.Buffer
	if err := parquetgo.Write(&b, []row{{3, .5}, {9, 2}}); err != nil {
		t.Fatal(err)
	}
	read := func(o lengthfile.Options) (bucket.Lengths, error) {
		return Read(bytes.NewReader(b.Bytes()), int64(b.Len()), "p", o)
	}
	if l, err := read(lengthfile.Options{}); err != nil || !slices.Equal(l, bucket.Lengths{3, 9}) {
		t.Error(l, err)
	}
	if l, err := read(lengthfile.Options{Column: "s", Scale: 10}); err != nil || !slices.Equal(l, bucket.Lengths{5, 20}) {
		t.Error(l, err)
	}
	if _, err := read(lengthfile.Options{Column: "s"}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "column s, row 1") {
		t.Error(err)
	}
	if _, err := read(lengthfile.Options{Column: "z"}); !errors.Is(err, bucket.ErrInput) {
		t.Error(err)
	}
	claim := []byte("PAR1\xff\xff\xff\x7fPAR1") // a footer larger than the file
	if _, err := Read(bytes.NewReader(claim), int64(len(claim)), "p", lengthfile.Options{}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "footer") {
		t.Error(err)
	}
}

func TestReadPairs(t *testing.T) {
	type row struct {
		A int32 `parquet:"a"`
		B int32 `parquet:"b"`
	}
	var b bytes.Buffer
	if err := parquetgo.Write(&b, []row{{3, 9}, {4, 8}}); err != nil {
		t.Fatal(err)
	}
	p, err := ReadPairs(bytes.NewReader(b.Bytes()), int64(b.Len()), "p", lengthfile.Options{Column: "b,a"})
	if err != nil {
		t.Fatal(err)
	}
	if s, g := p.Of(1); s != 8 || g != 4 {
		t.Error(s, g)
	}
}

func FuzzReadParquetLengths(f *testing.F) {
	var b bytes.Buffer
	type row struct{ A int32 }
	if err := parquetgo.Write(&b, []row{{3}, {4}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Read(bytes.NewReader(data), int64(len(data)), "p", lengthfile.Options{}); err != nil && !errors.Is(err, bucket.ErrInput) {
			t.Fatal(err)
		}
	})
}
