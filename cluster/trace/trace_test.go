package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const header = "job,worker,round,seconds\n"

func TestErrors(t *testing.T) {
	const above = "it must be a number above 0 and up to 1e+12; leave out rounds without a time"
	for _, c := range []struct {
		name, in string
		columns  Columns
		want     string
	}{
		{"empty", "", Columns{}, "f.csv: trace: invalid file: no rows; it needs a header and a row for each worker and round"},
		{"only a header", header, Columns{}, "f.csv: trace: invalid file: no rows; it needs a header and a row for each worker and round"},
		{"no column", "worker,time\n", Columns{}, "f.csv:1: trace: invalid file: no column \"round\"; there are worker, time; name yours by replay.round\n" +
			"f.csv:1: trace: invalid file: no column \"seconds\"; there are worker, time; name yours by replay.time"},
		{"no such job", "worker,round,seconds\n", Columns{Job: "task"}, "f.csv:1: trace: invalid file: no column \"task\"; there are worker, round, seconds; name yours by replay.job"},
		{"two columns", "worker,round,seconds,round\n", Columns{}, "f.csv:1: trace: invalid file: round: is the name of two columns"},
		{"two purposes", header, Columns{Job: "worker"}, "f.csv:1: trace: invalid file: worker: is named for two purposes"},
		{"short row", header + "1,1,1\n", Columns{}, "f.csv:2: trace: invalid file: 3 fields, the header has 4"},
		{"words", header + ",1,one,fast\n", Columns{}, "f.csv:2: trace: invalid file: job: is \"\"; a name has 1 to 64 bytes\n" +
			"f.csv:2: trace: invalid file: round: is \"one\"; it must be a whole number in 0..1000000000\n" +
			"f.csv:2: trace: invalid file: seconds: is \"fast\"; " + above},
		{"zero", header + "1,1,1,0\n", Columns{}, "f.csv:2: trace: invalid file: seconds: is \"0\"; " + above},
		{"not a number", header + "1,1,1,NaN\n", Columns{}, "f.csv:2: trace: invalid file: seconds: is \"NaN\"; " + above},
		{"infinite", header + "1,1,1,Inf\n", Columns{}, "f.csv:2: trace: invalid file: seconds: is \"Inf\"; " + above},
		{"negative round", header + "1,1,-1,1\n", Columns{}, "f.csv:2: trace: invalid file: round: is \"-1\"; it must be a whole number in 0..1000000000"},
		{"late round", header + "1,1,1000000001,1\n", Columns{}, "f.csv:2: trace: invalid file: round: is \"1000000001\"; it must be a whole number in 0..1000000000"},
		{"long time", header + "1,1,1,1.1e12\n", Columns{}, "f.csv:2: trace: invalid file: seconds: is \"1.1e12\"; " + above},
		{"half a round", header + "1,1,1.5,1\n", Columns{}, "f.csv:2: trace: invalid file: round: is \"1.5\"; it must be a whole number in 0..1000000000"},
		{"long name", header + "1," + strings.Repeat("w", 65) + ",1,1\n", Columns{}, "f.csv:2: trace: invalid file: worker: is \"" + strings.Repeat("w", 60) + "...\"; a name has 1 to 64 bytes"},
		{"twice", header + "1,1,1,1\n1,2,1,1\n1,1,1,2\n", Columns{}, "f.csv:4: trace: invalid file: round: worker \"1\" has another time for round 1 in line 2; keep one row, or name the columns of job and worker by replay.job and replay.worker"},
		{"no worker", "rank,round,seconds\n0,1,1\n1,1,2\n", Columns{}, "f.csv:3: trace: invalid file: round: worker \"\" has another time for round 1 in line 2; keep one row, or name the columns of job and worker by replay.job and replay.worker"},
		{"no such worker", "rank,round,seconds\n", Columns{Worker: "node"}, "f.csv:1: trace: invalid file: no column \"node\"; there are rank, round, seconds; name yours by replay.worker"},
		{"nothing in common", header + "1,1,1,1\n1,2,2,1\n", Columns{}, "f.csv: trace: invalid file: the workers of job \"1\" have no round in common: one begins at 2, one ends at 1; give them different jobs"},
		{"another encoding", header + "1,\xe9,1,1\n", Columns{}, "f.csv: trace: invalid file: not UTF-8; save it as UTF-8"},
		{"not CSV", header + "1,\"1,1,1\n", Columns{}, "f.csv:2: trace: invalid file: not CSV: extraneous or missing \" in quoted-field"},
	} {
		tr, err := Read(strings.NewReader(c.in), "f.csv", c.columns)
		if tr != nil || err == nil || err.Error() != c.want || !errors.Is(err, errFile) {
			t.Errorf("%s: %v\nwant %s", c.name, err, c.want)
		}
	}
	_, err := Read(strings.NewReader(header+strings.Repeat("1,1,1,0\n", 30)), "f.csv", Columns{})
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 21 || lines[20] != "f.csv: trace: invalid file: and more faults" || !strings.HasPrefix(lines[19], "f.csv:21: ") {
		t.Error(err)
	}
	if _, err := Read(bytes.NewReader(make([]byte, maxBytes+1)), "f.csv", Columns{}); err == nil || err.Error() != "f.csv: trace: invalid file: larger than 16 MiB; keep fewer rounds, or every tenth" {
		t.Error(err)
	}
	if tr, err := Read(strings.NewReader(header+"1,"+strings.Repeat("w", 64)+",1000000000,1e12\n"), "f.csv", Columns{}); err != nil || tr.Jobs[0].Last != 1000000000 {
		t.Error(err)
	}
	var many strings.Builder
	many.WriteString("worker,round,seconds\n")
	for i := range maxRows + 1 {
		fmt.Fprintf(&many, "1,%d,1\n", i)
	}
	if _, err := Read(strings.NewReader(many.String()), "f.csv", Columns{}); err == nil || err.Error() != "f.csv:500002: trace: invalid file: more than 500000 rows; keep fewer rounds, or every tenth" {
		t.Error(err)
	}
}

// plain is a trace as a plain reader of its rows sees it: job, worker, round to time.
type plain map[string]map[string]map[int]float64

// factor is what a worker's time was in a round, over the middle one of its job's.
func (p plain) factor(job, worker string, round float64) float64 {
	var all []float64
	for _, rows := range p[job] {
		for _, v := range rows {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	middle := all[len(all)/2]
	if len(all)%2 == 0 {
		middle = (all[len(all)/2-1] + all[len(all)/2]) / 2
	}
	last, first := -1, math.MaxInt
	for r := range p[job][worker] {
		first = min(first, r)
		if float64(r) <= round && r > last {
			last = r
		}
	}
	if last < 0 {
		last = first
	}
	return math.Min(math.Max(p[job][worker][last]/middle, 0.01), 100)
}

// Whatever the order of rows and columns, the factors are those of the plain twin.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := plain{}
		var rows []string
		jobs := rapid.IntRange(1, 3).Draw(t, "jobs")
		for j := range jobs {
			job := fmt.Sprintf("j%d", j)
			want[job] = map[string]map[int]float64{}
			for w := range rapid.IntRange(1, 3).Draw(t, "workers") {
				worker := fmt.Sprint(w)
				series := map[int]float64{5: 1}
				for range rapid.IntRange(0, 6).Draw(t, "rows") {
					series[rapid.IntRange(0, 12).Draw(t, "round")] = rapid.SampledFrom([]float64{0.001, 0.5, 1, 1.25, 3, 800}).Draw(t, "time")
				}
				want[job][worker] = series
				for r, v := range series {
					rows = append(rows, fmt.Sprintf("%g,x,%d,%s,%s", v, r, worker, job))
				}
			}
		}
		slices.Sort(rows)                      // maps have no order
		rows = append(rows, rows[len(rows)/2]) // once more
		rows = rapid.Permutation(rows).Draw(t, "order")
		tr, err := Read(strings.NewReader("ms,note,step,rank,job\r\n"+strings.Join(rows, "\r\n")), "f", Columns{Worker: "rank", Round: "step", Time: "ms"})
		if err != nil || len(tr.Jobs) != jobs {
			t.Fatal(err, tr)
		}
		for _, j := range tr.Jobs {
			if len(j.Workers) != len(want[j.Name]) {
				t.Fatalf("job %s has %d workers", j.Name, len(j.Workers))
			}
			first, last := 0, math.MaxInt
			for _, w := range j.Workers {
				low, high := math.MaxInt, 0
				for r := range want[j.Name][w.Name] {
					low, high = min(low, r), max(high, r)
				}
				first, last = max(first, low), min(last, high)
				for r := -1.0; r < 14; r += 0.5 {
					if got, f := w.At(r), want.factor(j.Name, w.Name, r); math.Abs(got-f) > 1e-12*f {
						t.Fatalf("%s/%s in round %v: %v, want %v", j.Name, w.Name, r, got, f)
					}
				}
			}
			if j.First != first || j.Last != last {
				t.Fatalf("job %s: %d to %d, want %d to %d", j.Name, j.First, j.Last, first, last)
			}
		}
	})
}

func TestTurn(t *testing.T) {
	j := Job{First: 3, Last: 6}
	for k, want := range []float64{3, 4, 5, 6, 5, 4, 3, 4, 5, 6, 5, 4, 3} {
		if got := j.Turn(float64(k)); got != want {
			t.Errorf("%d: %v, want %v", k, got, want)
		}
	}
	if got := j.Turn(1e9*6 + 3.25); got != 5.75 {
		t.Error(got)
	}
	one := Job{First: 7, Last: 7}
	if got := one.Turn(12); got != 7 {
		t.Error(got)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.csv")
	if err := os.WriteFile(path, []byte("\ufeffworker,round,seconds\na,1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, r := range []Replay{{File: "t.csv"}, {File: path}} {
		if err := r.Open(dir); err != nil || len(r.Trace.Jobs) != 1 || r.Trace.Jobs[0].Workers[0].At(1) != 1 || r.Trace.Source != "worker,round,seconds\na,1,2\n" {
			t.Error(err)
		}
	}
	if r := (Replay{File: "none.csv"}); !errors.Is(r.Open(dir), fs.ErrNotExist) {
		t.Error("a file that is not there")
	}
	if r := (Replay{File: "."}); !errors.Is(r.Open(dir), errFile) {
		t.Error("a folder")
	}
	if r := (Replay{Pace: 3, Scale: 2}); r.Rate() != 3 || r.Exponent() != 2 || (&Replay{}).Rate() != 1 || (&Replay{}).Exponent() != 1 {
		t.Error("defaults")
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(header+"1,0,1,476\n1,1,1,509\n1,0,11,480\n1,1,11,500\n"), "", "", "", "")
	f.Add([]byte("a,b,c\n1,2,3\n1,4,5\n"), "", "a", "b", "c")
	f.Add([]byte("\"job\",worker,round,seconds\n\"x\ny\",0,1,1e-300\n"), "job", "", "", "")
	f.Add([]byte(header+"1,1,1,1\n1,2,2,1\n"), "job", "", "", "")
	f.Fuzz(func(t *testing.T, source []byte, job, worker, round, time string) {
		tr, err := Read(bytes.NewReader(source), "f", Columns{job, worker, round, time})
		if err != nil {
			if tr != nil || !errors.Is(err, errFile) {
				t.Fatal(tr, err)
			}
			return
		}
		for _, j := range tr.Jobs {
			for _, w := range j.Workers {
				for _, position := range []float64{0, 1, 0.5, 1e9, 1e300} {
					at := j.Turn(position)
					if v := w.At(at); !(at >= float64(j.First) && at <= float64(j.Last) && v >= LeastFactor && v <= MostFactor) {
						t.Fatalf("%v: round %v, factor %v", position, at, v)
					}
				}
			}
		}
	})
}
