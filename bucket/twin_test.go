package bucket

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// No factor of a fine grid that stays within the slack gives fewer anchors than the search, and what it gives stays within.
func TestAnchorTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hist := make([]uint32, 400)
		for range rapid.IntRange(1, 30).Draw(t, "lengths") {
			hist[rapid.IntRange(1, 399).Draw(t, "length")] += 1 + rapid.Uint32Range(0, 50).Draw(t, "count")
		}
		c := formula{rapid.Float64Range(0, .5).Draw(t, "a"), 4e-5, 8e-7, 500}
		slack := rapid.Float64Range(0.001, .05).Draw(t, "slack")
		best, _ := efficient(hist, c)
		spent := func(anchors []float64) (sum float64) {
			for l, n := range hist {
				if n == 0 {
					continue
				}
				b := best[l]
				if b > fewSamples { // the largest anchor up to its own duration, else the least
					limit := anchors[0]
					for _, v := range anchors {
						if v <= c.Seconds(l, b)*(1+1e-9) {
							limit = v
						}
					}
					for b > 1 && c.Seconds(l, b) > limit*(1+1e-9) {
						b--
					}
				}
				sum += float64(n) * c.Seconds(l, b) / float64(b)
			}
			return sum
		}
		got := searchAnchors(hist, c, best, slack)
		most := spent([]float64{math.Inf(1)}) * (1 + slack)
		if len(got) > 1 && spent(got) > most*(1+1e-9) {
			t.Fatalf("%v: work %v above %v", got, spent(got), most)
		}
		least := math.Inf(1)
		for l, n := range hist {
			if n > 0 && best[l] > fewSamples {
				least = min(least, c.Seconds(l, best[l]))
			}
		}
		if !math.IsInf(least, 1) && spent([]float64{least}) <= most*(1-1e-9) && len(got) > 1 {
			t.Fatalf("%d anchors where the least duration alone is within the slack", len(got))
		}
	})
}

// Every sample comes exactly once, memory is never passed, the bound holds, the file says
// the same, and the order is a function of seed and epoch, in every mode of mixing.
func TestScheduleTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lengths(rapid.SliceOfN(rapid.Uint32Range(1, 60), 1, 200).Draw(t, "lengths"))
		f := Config{Mixing: with(rapid.SampledFrom([]float64{0, .05, .2, .5, .85, 1}).Draw(t, "mixing")), MicroBatches: rapid.IntRange(0, 3).Draw(t, "micro-batches"),
			PadTo: rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "pad"), BatchMultiple: rapid.SampledFrom([]int{0, 1, 2}).Draw(t, "multiple"),
			Speeds:   rapid.SliceOfN(rapid.SampledFrom([]float64{1, 1, .9, .3, 1.5, 2, 4}), 1, 5).Draw(t, "speeds"),
			Overlong: rapid.SampledFrom([]string{Refuse, Skip, Truncate}).Draw(t, "overlong")}
		top := rapid.IntRange(20, 80).Draw(t, "top")
		var table stepcost.Table
		for _, n := range []int{5, 20, 35, 50, 80} {
			for _, b := range []int{1, 2, 4, 8} {
				r := stepcost.Trial{Length: n, Batch: b, Seconds: .1 + .01*float64(n*b)*rapid.Float64Range(.9, 1.1).Draw(t, "noise")}
				r.OutOfMemory = n > top || n*b > 160
				table = append(table, r)
			}
		}
		c, err := stepcost.New(table, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Make(l, c, f)
		if err != nil {
			if fits := c.Longest(); !errors.Is(err, ErrInput) || f.Overlong == Refuse && int(slices.Max(l)) <= fits/4*4 && f.BatchMultiple < 2 {
				t.Fatal(err)
			}
			return
		}
		s := p.Schedule(l, 3, 4)
		score, err := Judge(l, s.All(), p.Cost(), p.Speeds, p.Limit, nil)
		if err != nil {
			t.Fatal(err)
		}
		long := 0
		if f.Overlong == Skip {
			for _, v := range l {
				if int(v) > p.Limit {
					long++
				}
			}
		}
		if score.OutOfMemory+score.Repeated > 0 || score.Lost != long || long != p.Skipped {
			t.Fatalf("%+v, %d skipped, %d too long", score, p.Skipped, long)
		}
		if score.EpochSeconds < p.LowerBoundSeconds*(1-1e-9) {
			t.Fatalf("%v s is below the bound %v", score.EpochSeconds, p.LowerBoundSeconds)
		}
		for i := range s.Len() {
			for k, part := range p.Schedule(l, 3, 4).First(i) {
				if !slices.Equal(part, s.Samples(s.Step(i)[k])) {
					t.Fatalf("step %d alone differs", i)
				}
			}
		}

		var plan, file, again bytes.Buffer
		if err := p.Write(&plan); err != nil {
			t.Fatal(err)
		}
		q, err := ReadPlan(bytes.NewReader(plan.Bytes()), "plan.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Bind(l); err != nil {
			t.Fatal(err)
		}
		for _, w := range []struct {
			p   *Plan
			out *bytes.Buffer
		}{{p, &file}, {q, &again}} {
			s := w.p.Schedule(l, 3, 4)
			h, err := w.p.Header(s, 3, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := WriteSchedule(w.out, h, s); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(file.Bytes(), again.Bytes()) {
			t.Fatal("a plan that was read gives another schedule")
		}
		r, err := NewScheduleReader(&file, "s")
		if err != nil {
			t.Fatal(err)
		}
		if read, err := Judge(l, r.All(), p.Cost(), p.Speeds, p.Limit, nil); err != nil || read != score {
			t.Fatalf("from the file %+v, %v; before %+v", read, err, score)
		}
		h, err := p.Header(s, 3, 4, 0)
		if err != nil {
			t.Fatal(err)
		}
		state := h.State(s.Len() / 2)
		if text, _ := json.Marshal(state); len(text) > 1000 {
			t.Fatalf("state of %d bytes", len(text))
		}
		if _, from, err := q.Resume(l, state, Group{p.Ranks, p.Speeds}); err != nil || from != s.Len()/2 {
			t.Fatal(from, err)
		}
	})
}

// With costs linear between the trials nothing in a full scan beats what the breaks give.
func TestBoundTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table stepcost.Table
		for n := 10; n <= 30; n += 10 {
			for _, b := range []int{1, 3, 7, 12} {
				table = append(table, stepcost.Trial{Length: n, Batch: b, Seconds: rapid.Float64Range(.1, 3).Draw(t, "seconds")})
			}
		}
		c, err := stepcost.New(table, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 30).Draw(t, "length")
		hist := make([]uint32, n+1)
		hist[n] = 1
		_, rate := efficient(hist, c)
		best := math.Inf(1)
		for b := 1; b <= c.Cap(n); b++ {
			best = min(best, c.Seconds(n, b)/float64(b))
		}
		if math.Abs(best-rate[n]) > 1e-12 {
			t.Fatalf("by breaks %v, by scan %v", rate[n], best)
		}
	})
}

func TestSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	k := jsonschema.NewCompiler()
	if err := k.AddResource("plan.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := k.Compile("plan.json")
	if err != nil {
		t.Fatal(err)
	}
	table, err := stepcost.ReadTable(strings.NewReader(smallTable), "t")
	if err != nil {
		t.Fatal(err)
	}
	c, err := stepcost.New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Make(Lengths{1, 5, 9, 3}, c, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		t.Fatal(err)
	}
	table = nil
	for _, batch := range []int{1, 2, 4, 8} {
		table = append(table, stepcost.Trial{Length: 9, Target: 4, Batch: batch, Seconds: .1 + float64(batch)}, stepcost.Trial{Length: 9, Target: 9, Batch: batch, Seconds: .1 + 2*float64(batch)})
	}
	two, err := stepcost.NewPair(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	pairs, err := NewPairs(Lengths{1, 5, 9, 3}, Lengths{2, 2, 9, 1})
	if err != nil {
		t.Fatal(err)
	}
	q, err := MakePairs(pairs, two, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := q.Write(&b); err != nil {
		t.Fatal(err)
	}
	w, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(w); err != nil {
		t.Fatal(err)
	}
	delete(v.(map[string]any), "mixing")
	if schema.Validate(v) == nil {
		t.Fatal("a plan without its mixing passes")
	}
}

const smallTable = stepcost.TableHeader + "\n5,1,0.1,10\n5,2,0.15,20\n10,1,0.16,20\n10,2,,\n"

func TestBadInput(t *testing.T) {
	for text, want := range map[string]string{
		"": "no lengths", "5\n0\n": "f:2: field 1: length 0 is below 1", "5\n-3\n": "f:2: field 1: length -3 is below 1",
		"5\nx\n": `f:2: field 1: length "x" is not a number`, "1.5\n": "give a scale", "len\n": `f:1: field 1: length "len" is not a number`, "len,b\n": "no lengths",
	} {
		if _, err := ReadLengths(strings.NewReader(text), "f", LengthsOptions{}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := Make(Lengths{5}, costA, Config{}); !errors.Is(err, ErrInput) {
		t.Error("0 ranks:", err)
	}
	p, err := Make(lognormal(500, 100, .5, 1000), costA, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := State{Version: 1, Data: "other", Ranks: 2, Seed: 1, Epoch: 1, Step: 1}
	if _, _, err := p.Resume(nil, s, Group{Ranks: 2}); !errors.Is(err, ErrInput) {
		t.Error("other data:", err)
	}
	s.Data, s.Plan = p.Data, "other"
	if _, _, err := p.Resume(nil, s, Group{Ranks: 2}); !errors.Is(err, ErrInput) {
		t.Error("other plan:", err)
	}
}

func TestParquetLengths(t *testing.T) {
	type row struct {
		A int32   `parquet:"a"`
		S float64 `parquet:"s"`
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, []row{{3, .5}, {9, 2}}); err != nil {
		t.Fatal(err)
	}
	read := func(o LengthsOptions) (Lengths, error) {
		return ReadParquetLengths(bytes.NewReader(b.Bytes()), int64(b.Len()), "p", o)
	}
	if l, err := read(LengthsOptions{}); err != nil || !slices.Equal(l, Lengths{3, 9}) {
		t.Error(l, err)
	}
	if l, err := read(LengthsOptions{Column: "s", Scale: 10}); err != nil || !slices.Equal(l, Lengths{5, 20}) {
		t.Error(l, err)
	}
	if _, err := read(LengthsOptions{Column: "s"}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "column s, row 1") {
		t.Error(err)
	}
	if _, err := read(LengthsOptions{Column: "z"}); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	claim := []byte("PAR1\xff\xff\xff\x7fPAR1") // a footer larger than the file
	if _, err := ReadParquetLengths(bytes.NewReader(claim), int64(len(claim)), "p", LengthsOptions{}); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "footer") {
		t.Error(err)
	}
	l := lognormal(300, 100, .5, 1000)
	p, err := Make(l, costA, Config{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Schedule(l, 1, 0)
	h, _ := p.Header(s, 1, 0, 0)
	b.Reset()
	if err := WriteParquet(&b, h, s); err != nil {
		t.Fatal(err)
	}
	want, err := Judge(l, s.All(), costA, p.Speeds, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewParquetScheduleReader(bytes.NewReader(b.Bytes()), int64(b.Len()), "p")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Judge(l, r.All(), costA, p.Speeds, 0, nil); err != nil || got != want || !reflect.DeepEqual(r.Header, h) {
		t.Error(got, want, r.Header, err)
	}
	b.Reset()
	h.Samples = 100
	if err := WriteParquet(&b, h, s); err != nil {
		t.Fatal(err)
	}
	if r, err = NewParquetScheduleReader(bytes.NewReader(b.Bytes()), int64(b.Len()), "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := Judge(l, r.All(), costA, p.Speeds, 0, nil); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "of 100") {
		t.Error(err)
	}
}
