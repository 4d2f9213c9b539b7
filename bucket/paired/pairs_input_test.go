package paired

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
)

func TestNew(t *testing.T) {
	if _, err := New(bucket.Lengths{1, 2}, bucket.Lengths{3}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "2 source lengths and 1 target lengths") {
		t.Error(err)
	}
	if _, err := New(bucket.Lengths{1, 2}, bucket.Lengths{3, 0}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "sample 1") {
		t.Error(err)
	}
}

func TestPairsBadInput(t *testing.T) {
	l, err := New(bucket.Lengths{5, 40, 5}, bucket.Lengths{5, 5, 900})
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]bucket.Config{
		"overlong truncate": {Ranks: 2, Overlong: bucket.Truncate}, "micro batches 2": {Ranks: 2, MicroBatches: 2},
		"ranks 0": {}, "mixing 2": {Ranks: 2, Mixing: with(2)}, "max tokens 1": {Ranks: 2, MaxTokens: 1}, "max samples 1": {Ranks: 2, MaxSamples: 1},
		"sample 2 (source 5, target 900)": {Ranks: 1}, "batch multiple 9000": {Ranks: 1, BatchMultiple: 9000, Overlong: bucket.Skip},
	} {
		if _, err := Make(l, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, f); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	short, _ := New(bucket.Lengths{5, 40}, bucket.Lengths{5, 5})
	for _, overlong := range []string{bucket.Refuse, bucket.Skip} { // memory holds it: that is no lack of room for which a sample is skipped
		if _, err := Make(short, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, bucket.Config{Ranks: 1, MaxTokens: 44, Overlong: overlong}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "max tokens 44 of a step leave 44 for a batch: sample 1, of source 40, target 5, fits into none") {
			t.Error(err)
		}
	}
	if p, err := Make(short, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, bucket.Config{Ranks: 2, MaxSamples: 6, BatchMultiple: 4}); err != nil || p.Lost > 0 {
		t.Error("a limit below the multiple:", err)
	}
	if _, err := Make(l, seq2seq{m: 3, w: 1}, bucket.Config{Ranks: 1, Overlong: bucket.Skip}); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), "all would be skipped") {
		t.Error(err)
	}
	p, err := Make(l, seq2seq{.1, .01, .01, 0, 0, 0, 800, 1}, bucket.Config{Ranks: 1, Overlong: bucket.Skip})
	if err != nil || p.Skipped != 1 {
		t.Fatal(p, err)
	}
	for want, spoil := range map[string]func(*Plan){
		"table: row 0": func(p *Plan) { p.Table = stepcost.Table{{Length: 1, Batch: 1, Seconds: 1}} },
		"band_area":    func(p *Plan) { p.BandArea = 0 },
		"free_cut":     func(p *Plan) { p.Pairs, p.FreeCut = false, true },
	} {
		q := *p
		spoil(&q)
		var b bytes.Buffer
		if err := q.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.ReadPlan(&b, "p"); !errors.Is(err, bucket.ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	all := []uint32{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}
	if x, err := bucket.Judge(l.Kinds, bucket.Listed([][]bucket.RankBatch{{{Samples: all}}}), p.Cost(), p.Speeds, 0, nil); err != nil || x.OutOfMemory != 1 || x.Repeated != 22 || x.Lost != 1 {
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
		l, err := New(sources, targets)
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
	l, _ := New(bucket.Lengths{1}, bucket.Lengths{1})
	if _, _, err := l.Uppers(3); !errors.Is(err, bucket.ErrInput) {
		t.Error(err)
	}
}
