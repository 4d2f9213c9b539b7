package bucket_test

import (
	"bytes"
	"slices"
	"testing"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

func FuzzReadPlan(f *testing.F) {
	l := bucket.Lengths{1, 5, 9, 3}
	table, _ := stepcost.ReadTable(bytes.NewReader([]byte(smallTable)), "t")
	c, _ := stepcost.New(table, 0)
	p, _ := bucket.Make(l, c, bucket.Config{Ranks: 2})
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := bucket.ReadPlan(bytes.NewReader(data), "p")
		if err != nil {
			if !badinput.Is(err) {
				t.Fatal(err)
			}
			return
		}
		if p.Bind(l) == nil {
			p.Schedule(l, 1, 1).Fill()
		}
	})
}

func FuzzReadState(f *testing.F) {
	f.Add([]byte(`{"version":1,"data":"","plan":"","ranks":1,"seed":1,"epoch":0,"step":0}`))
	f.Add([]byte(`{"version":1,"ranks":2,"step":2,"parts":[{"ranks":1,"plan":"","steps":1},{"ranks":2,"speeds":[1,2],"plan":"","steps":1}]}`))
	l := bucket.Lengths{1, 2, 3, 4, 5, 6, 7, 8}
	p, err := bucket.Make(l, bucket.A, bucket.Config{Ranks: 2, MaxSamples: 2})
	if err != nil {
		f.Fatal(err)
	}
	h := p.Header(p.Schedule(l, 1, 0), 1, 0, 0)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := bucket.ReadState(bytes.NewReader(data), "s")
		if err != nil && !badinput.Is(err) {
			t.Fatal(err)
		}
		s.Data, s.Plan = p.Data, h.Plan
		if _, _, err := p.Resume(l, s, slices.Repeat([]float64{1}, 2)); err != nil && !badinput.Is(err) {
			t.Fatal(err)
		}
	})
}
