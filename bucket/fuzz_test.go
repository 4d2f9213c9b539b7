package bucket

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

func FuzzReadLengths(f *testing.F) {
	for _, s := range []string{"3\n4\n", "a,b\n1,2\n", "1.5\n", "\x1f\x8b", "-1"} {
		f.Add([]byte(s), "", 0.0)
		f.Add([]byte(s), "1,2", 2.0)
	}
	f.Fuzz(func(t *testing.T, data []byte, column string, scale float64) {
		l, err := ReadLengths(bytes.NewReader(data), "f", LengthsOptions{Column: column, Scale: scale})
		if err == nil && len(l) == 0 {
			t.Fatal("no lengths and no error")
		}
		for _, v := range l {
			if v < 1 || v > MaxLength {
				t.Fatalf("length %d", v)
			}
		}
	})
}

func FuzzReadPlan(f *testing.F) {
	l := Lengths{1, 5, 9, 3}
	table, _ := stepcost.ReadTable(bytes.NewReader([]byte(smallTable)), "t")
	c, _ := stepcost.New(table, 0)
	p, _ := Make(l, c, Config{Ranks: 2})
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPlan(bytes.NewReader(data), "p")
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Fatal(err)
			}
			return
		}
		if p.Bind(l) == nil {
			p.Schedule(l, 1, 1).Fill()
		}
	})
}

func FuzzReadSchedule(f *testing.F) {
	f.Add([]byte(`{"format":"evenkeel-schedule","version":1,"samples":3,"ranks":1,"steps":1}` + "\n" + `{"step":0,"rank":0,"weight":1,"samples":[0,1,2]}` + "\n" + `{"end":true}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewScheduleReader(bytes.NewReader(data), "s")
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
	})
}

func FuzzReadParquetSchedule(f *testing.F) {
	l := lognormal(50, 100, .5, 1000)
	p, err := Make(l, costA, Config{Ranks: 2})
	if err != nil {
		f.Fatal(err)
	}
	s := p.Schedule(l, 1, 0)
	h, _ := p.Header(s, 1, 0, 0)
	var b bytes.Buffer
	if err := WriteParquet(&b, h, s); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := NewParquetScheduleReader(bytes.NewReader(data), int64(len(data)), "s")
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
	})
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte(`{"version":1,"data":"","plan":"","ranks":1,"seed":1,"epoch":0,"step":0}`))
	f.Add([]byte(`{"version":1,"ranks":2,"step":2,"parts":[{"ranks":1,"plan":"","steps":1},{"ranks":2,"speeds":[1,2],"plan":"","steps":1}]}`))
	l := Lengths{1, 2, 3, 4, 5, 6, 7, 8}
	p, err := Make(l, costA, Config{Ranks: 2, MaxSamples: 2})
	if err != nil {
		f.Fatal(err)
	}
	sum, err := p.sum()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ReadState(bytes.NewReader(data), "s")
		if err != nil && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
		s.Data, s.Plan = p.Data, sum
		if _, _, err := p.Resume(l, s, Group{Ranks: 2}); err != nil && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
	})
}

func FuzzReadParquetLengths(f *testing.F) {
	var b bytes.Buffer
	type row struct{ A int32 }
	if err := parquet.Write(&b, []row{{3}, {4}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ReadParquetLengths(bytes.NewReader(data), int64(len(data)), "p", LengthsOptions{}); err != nil && !errors.Is(err, ErrInput) {
			t.Fatal(err)
		}
	})
}
