package bucket

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket/stepcost"
	"evenkeel/internal/badinput"
)

// Every sample comes exactly once, memory is never passed, the bound holds, the file says
// the same, and the order is a function of seed and epoch, in every mode of mixing.
func TestScheduleTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lengths(rapid.SliceOfN(rapid.Uint32Range(1, 60), 1, 200).Draw(t, "lengths"))
		f := Config{Mixing: with(rapid.SampledFrom([]float64{0, .002, .01, .05, .3, 1}).Draw(t, "mixing")), MicroBatches: rapid.IntRange(0, 3).Draw(t, "micro-batches"),
			PadTo:    rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "pad"),
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
			fits := sort.Search(60, func(n int) bool { return c.Cap(n+1) < 1 })
			if !badinput.Is(err) || f.Overlong == Refuse && int(slices.Max(l)) <= fits/4*4 {
				t.Fatal(err)
			}
			return
		}
		s := p.Schedule(l, 3, 4)
		score, err := Judge(l, s.All(), p.cost, p.Speeds, p.Limit)
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
			h := w.p.Header(s, 3, 4, 0)
			if err := WriteSchedule(w.out, h, s); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(file.Bytes(), again.Bytes()) {
			t.Fatal("a plan that was read gives another schedule")
		}
		read, err := Judge(l, fileSteps(t, file.String()), p.cost, p.Speeds, p.Limit)
		if err != nil || read != score {
			t.Fatalf("from the file %+v, %v; before %+v", read, err, score)
		}
		h := p.Header(s, 3, 4, 0)
		state := h.State(s.Len() / 2)
		if text, _ := json.Marshal(state); len(text) > 1000 {
			t.Fatalf("state of %d bytes", len(text))
		}
		if _, from, err := q.Resume(l, state, p.Speeds); err != nil || from != s.Len()/2 {
			t.Fatal(from, err)
		}
	})
}

// fileSteps are the steps of a schedule file.
func fileSteps(t *rapid.T, text string) (steps [][]RankBatch) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range lines[1 : len(lines)-1] {
		var l Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		for len(steps) <= l.Step {
			steps = append(steps, nil)
		}
		steps[l.Step] = append(steps[l.Step], RankBatch{l.Rank, l.Samples})
	}
	return steps
}
