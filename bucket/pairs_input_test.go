package bucket

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

func TestReadPairs(t *testing.T) {
	for _, c := range []struct{ text, column, want, bad string }{
		{"3,4\n5,6\n", "", "3 4 5 6", ""},
		{"a,en,de\n1,3,4\n2,\"5\",6\n", "de,en", "4 3 6 5", ""},
		{"3,4\n5\n", "", "", "f:2: field 2: missing"},
		{"3,4\n5,\n", "", "", "f:2: field 2"},
		{"3,4\n5,0\n", "", "", "f:2: field 2: length 0 is below 1"},
		{"10,\n5,6\n", "", "", `f:1: field 2: length "" is not a number`},
		{"1e400,5\n5,6\n", "", "", `f:1: field 1: length "1e400" is not a number`},
		{"2,x\n5,6\n", "", "", `f:1: field 2: length "x" is not a number`},
		{"x,\"-5\"\n5,6\n", "2,1", "", "f:1: field 2: length -5 is below 1"},
		{"a,5,6\nb,7,8\n", "3,2", "6 5 8 7", ""},
		{"2024,de\n5,6\n", "2024,de", "5 6", ""},
		{"en,id,de\n5,6,7\n", "1,3", "5 7", ""},
		{"3\n", "", "", `no column "2"`},
		{"3,4\n\n5,6\n", "", "", "f:2: a blank line"},
		{"3,4\n", "1", "", "take two columns"},
		{"3,4,5\n", "1,2,3", "", "take two columns"},
		{"", "", "", "no lengths"},
	} {
		p, err := ReadPairs(strings.NewReader(c.text), "f", LengthsOptions{Column: c.column})
		if c.bad != "" {
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: %v, want %s", c.text, err, c.bad)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		var got []string
		for i := range p.Kinds {
			s, g := p.Of(i)
			got = append(got, strings.Fields(strings.NewReplacer("source ", "", "target ", "", ",", "").Replace(shape{Source: s, Target: g}.String()))...)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%q: %s, want %s", c.text, text, c.want)
		}
	}
	if l, err := ReadLengths(strings.NewReader("5,x\n5,6\n"), "f", LengthsOptions{Column: "1,2", Pair: "sum"}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), `f:1: field 2: length "x" is not a number`) {
		t.Error(l, err)
	}
	if _, err := NewPairs(Lengths{1, 2}, Lengths{3}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "2 source lengths and 1 target lengths") {
		t.Error(err)
	}
	if _, err := NewPairs(Lengths{1, 2}, Lengths{3, 0}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "sample 1") {
		t.Error(err)
	}
	type row struct {
		A int32 `parquet:"a"`
		B int32 `parquet:"b"`
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, []row{{3, 9}, {4, 8}}); err != nil {
		t.Fatal(err)
	}
	p, err := ReadParquetPairs(bytes.NewReader(b.Bytes()), int64(b.Len()), "p", LengthsOptions{Column: "b,a"})
	if err != nil {
		t.Fatal(err)
	}
	if s, g := p.Of(1); s != 8 || g != 4 {
		t.Error(s, g)
	}
}

func TestPairsBadInput(t *testing.T) {
	l, err := NewPairs(Lengths{5, 40, 5}, Lengths{5, 5, 900})
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]Config{
		"packed": {Ranks: 2, Packed: true}, "overlong truncate": {Ranks: 2, Overlong: Truncate}, "micro batches 2": {Ranks: 2, MicroBatches: 2},
		"ranks 0": {}, "mixing 2": {Ranks: 2, Mixing: with(2)}, "max tokens 1": {Ranks: 2, MaxTokens: 1}, "max samples 1": {Ranks: 2, MaxSamples: 1},
		"sample 2 (source 5, target 900)": {Ranks: 1}, "batch multiple 9000": {Ranks: 1, BatchMultiple: 9000, Overlong: Skip},
	} {
		if _, err := MakePairs(l, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, f); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	short, _ := NewPairs(Lengths{5, 40}, Lengths{5, 5})
	for _, overlong := range []string{Refuse, Skip} { // memory holds it: that is no lack of room for which a sample is skipped
		if _, err := MakePairs(short, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, Config{Ranks: 1, MaxTokens: 44, Overlong: overlong}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "max tokens 44 of a step leave 44 for a batch: sample 1, of source 40, target 5, fits into none") {
			t.Error(err)
		}
	}
	if p, err := MakePairs(short, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, Config{Ranks: 2, MaxSamples: 6, BatchMultiple: 4}); err != nil || p.Lost > 0 {
		t.Error("a limit below the multiple:", err)
	}
	if _, err := MakePairs(l, seq2seq{m: 3, w: 1}, Config{Ranks: 1, Overlong: Skip}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "all would be skipped") {
		t.Error(err)
	}
	p, err := MakePairs(l, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, Config{Ranks: 1, Overlong: Skip})
	if err != nil || p.Skipped != 1 {
		t.Fatal(p, err)
	}
	for want, spoil := range map[string]func(*Plan){
		"table: row 0": func(p *Plan) { p.Table = stepcost.Table{{Length: 1, Batch: 1, Seconds: 1}} },
		"band_area":    func(p *Plan) { p.BandArea = 0 },
		"packed":       func(p *Plan) { p.Packed = true },
		"free_cut":     func(p *Plan) { p.Pairs, p.FreeCut = false, true },
	} {
		q := *p
		spoil(&q)
		var b bytes.Buffer
		if err := q.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPlan(&b, "p"); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	all := []uint32{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}
	if x, err := Judge(l.Kinds, Listed([][]RankBatch{{{0, all}}}), p.Cost(), p.Speeds, 0, nil); err != nil || x.OutOfMemory != 1 || x.Repeated != 22 || x.Lost != 1 {
		t.Error(x, err)
	}
	s := p.Schedule(l.Kinds, 1, 0)
	if h, err := p.Header(s, 1, 0, 0); err != nil || h.Idle != 0 {
		t.Error(h, err)
	}
}

// Where nothing of a table says otherwise, profiling covers every sample: the shapes to try are as long in both.
func TestPairsUppers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources, targets, _ := smallPairs(t, 200)
		l, err := NewPairs(sources, targets)
		if err != nil {
			t.Fatal(err)
		}
		s, g, err := l.Uppers(rapid.IntRange(4, 40).Draw(t, "buckets"))
		if err != nil {
			t.Fatal(err)
		}
		tried := false // the longest target with a source of its own
		for k := range s {
			for i := range sources {
				tried = tried || s[k] == int(sources[i]) && g[k] == int(targets[i]) && targets[i] == slices.Max(targets)
			}
		}
		if !tried {
			t.Fatal("the longest target is not tried as it is")
		}
		for i := range sources {
			covered := false
			for k := range s {
				covered = covered || s[k] >= int(sources[i]) && g[k] >= int(targets[i])
			}
			if !covered {
				t.Fatalf("sample of %d and %d is longer than %v, %v", sources[i], targets[i], s, g)
			}
		}
	})
	l, _ := NewPairs(Lengths{1}, Lengths{1})
	if _, _, err := l.Uppers(3); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
}

func FuzzReadPairs(f *testing.F) {
	for _, s := range []string{"3,4\n5,6\n", "a,b\n1,2\n", "1\n", "\x1f\x8b", "-1,2", "1,2\n3\n"} {
		f.Add([]byte(s), "")
		f.Add([]byte(s), "2,1")
	}
	f.Fuzz(func(t *testing.T, data []byte, column string) {
		p, err := ReadPairs(bytes.NewReader(data), "f", LengthsOptions{Column: column})
		if err != nil {
			return
		}
		if len(p.Kinds) == 0 {
			t.Fatal("no lengths and no error")
		}
		for i := range p.Kinds {
			if s, g := p.Of(i); s < 1 || s > MaxLength || g < 1 || g > MaxLength {
				t.Fatal(i, s, g)
			}
		}
	})
}
