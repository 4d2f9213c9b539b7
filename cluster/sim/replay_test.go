package sim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/trace"
)

// measured is the rows of a trace by job, worker and round, and the trace that a file of
// them reads as.
type measured map[string][]map[int]float64

func (m measured) read(t testing.TB) *trace.Trace {
	t.Helper()
	var b strings.Builder
	b.WriteString("job,worker,round,seconds\n")
	for _, job := range []string{"x", "y"} { // a map has no order
		for w, rows := range m[job] {
			for r := range 100 {
				if v, ok := rows[r]; ok {
					fmt.Fprintf(&b, "%s,%d,%d,%v\n", job, w, r, v)
				}
			}
		}
	}
	tr, err := trace.Read(strings.NewReader(b.String()), "t", trace.Columns{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// series makes a worker with a time every so many rounds, from first to last.
func series(first, last, every int, at func(round int) float64) map[int]float64 {
	rows := map[int]float64{}
	for r := first; r <= last; r += every {
		rows[r] = at(r)
	}
	return rows
}

var recorded = measured{
	"x": { // the middle time is 10
		series(0, 40, 4, func(r int) float64 { return 10 + float64(r)/10 }),
		series(0, 40, 4, func(r int) float64 { return 10 - float64(r)/10 }),
		series(0, 40, 1, func(int) float64 { return 10 }),
	},
	"y": { // the middle time is 2
		series(2, 9, 1, func(r int) float64 { return 1 + float64(r%2) }),
		series(0, 12, 1, func(r int) float64 { return 2 - float64(r%2) }),
	},
}

// A plain twin walks every node through the rows and turns back at both ends.
func TestReplay(t *testing.T) {
	tr := recorded.read(t)
	middle := map[string]float64{"x": 10, "y": 2}
	bounds := map[string][2]int{"x": {0, 40}, "y": {2, 9}}
	c := &cluster.Cluster{GlobalBatch: 8, Nodes: make([]cluster.Node, 8)}
	jobs := map[string]int{}
	var begins []float64
	for seed := range uint64(300) {
		for _, pace := range []int{0, 1, 3} {
			scale := []float64{0, 2, 0.5}[seed%3]
			s := New(c, cluster.Conditions{Replay: trace.Replay{Trace: tr, Pace: float64(pace), Scale: scale}}, seed)
			name := s.replay.job.Name
			if pace == 0 {
				jobs[name]++
				begins = append(begins, s.replay.nodes[0].begin/float64(bounds[name][1]-bounds[name][0]))
			}
			of := workersOf(t, s, len(recorded[name]))
			at, step := make([]float64, len(c.Nodes)), make([]float64, len(c.Nodes))
			for i := range at {
				at[i], step[i] = float64(bounds[name][0])+s.replay.nodes[i].begin, 1
			}
			for round := range 60 {
				for i, n := range s.nodes {
					rows := recorded[name][of[i]]
					last := 0
					for r := range rows {
						if float64(r) <= at[i] && r >= last {
							last = r
						}
					}
					want := rows[last] / middle[name]
					if scale != 0 {
						want = math.Pow(want, scale)
					}
					if math.Abs(n.slowdown-want) > 1e-9 {
						t.Fatalf("seed %d, job %s, node %d, round %d: slowdown %v, want %v", seed, name, i, round, n.slowdown, want)
					}
					for range max(pace, 1) {
						at[i] += step[i]
						if over := at[i] - float64(bounds[name][1]); over > 0 {
							at[i], step[i] = at[i]-2*over, -1
						} else if under := float64(bounds[name][0]) - at[i]; under > 0 {
							at[i], step[i] = at[i]+2*under, 1
						}
					}
				}
				s.advance()
			}
		}
	}
	if x := float64(jobs["x"]); math.Abs(x-150) > 4*math.Sqrt(75) || jobs["x"]+jobs["y"] != 300 {
		t.Errorf("jobs are not drawn evenly: %v", jobs)
	}
	slices.Sort(begins)
	worst := 0.0 // Kolmogorov's distance from a uniform number
	for k, v := range begins {
		worst = max(worst, math.Abs(v-(float64(k)+0.5)/300))
	}
	if worst > 1.95/math.Sqrt(300) {
		t.Errorf("beginnings are %.3f from uniform", worst)
	}
}

// workersOf says which worker each node goes through, and that each order of them holds
// every worker once and begins at one round.
func workersOf(t *testing.T, s *Simulator, workers int) []int {
	t.Helper()
	var of []int
	for i, n := range s.replay.nodes {
		k := slices.IndexFunc(s.replay.job.Workers, func(w trace.Worker) bool { return w.Name == n.worker.Name })
		first := i / workers * workers
		if slices.Contains(of[first:], k) || n.begin != s.replay.nodes[first].begin {
			t.Fatalf("node %d: worker %d, from %v", i, k, n.begin)
		}
		of = append(of, k)
	}
	return of
}

// What is replayed multiplies the rest and changes none of it; a copy goes on alike.
func TestReplayMultiplies(t *testing.T) {
	k := preset(t, "bursts")
	k.Job.Noise, k.Straggler = 0.5, cluster.Straggler{Chance: 1, Excess: cluster.Spread{Median: 2}}
	c := &cluster.Cluster{GlobalBatch: 8, Nodes: make([]cluster.Node, 8)}
	only := cluster.Conditions{Replay: trace.Replay{Trace: recorded.read(t)}}
	both := k
	both.Replay = only.Replay
	a, b, s := New(c, k, 5), New(c, only, 5), New(c, both, 5)
	differs := false
	for round := range 50 {
		for i := range s.nodes {
			if want := a.nodes[i].slowdown * b.nodes[i].slowdown; math.Abs(s.nodes[i].slowdown/want-1) > 1e-12 || s.nodes[i].factor != a.nodes[i].factor || s.truth.Slowdown[i] != s.nodes[i].slowdown {
				t.Fatalf("round %d, node %d: %v, want %v", round, i, s.nodes[i].slowdown, want)
			}
			differs = differs || b.nodes[i].slowdown != 1
		}
		for _, x := range []*Simulator{a, b, s} {
			x.advance()
			x.look(0)
		}
	}
	if !differs {
		t.Error("nothing was replayed")
	}
}

func TestReplayBounds(t *testing.T) {
	tr := measured{"x": {{0: 1e-6}, {0: 1}, {0: 1e6}}}.read(t)
	c := &cluster.Cluster{GlobalBatch: 3, Nodes: make([]cluster.Node, 3)}
	for _, scale := range []float64{1, 10} {
		s := New(c, cluster.Conditions{Replay: trace.Replay{Trace: tr, Scale: scale}}, 1)
		var got []float64
		for _, n := range s.nodes {
			got = append(got, n.slowdown)
		}
		slices.Sort(got)
		if diff := cmp.Diff([]float64{0.01, 1, 100}, got); diff != "" {
			t.Error(diff)
		}
	}
	s := New(c, cluster.Conditions{Replay: trace.Replay{File: "t.csv"}}, 1)
	if _, err := s.Round(context.Background(), cluster.Plan{Sizes: []int{1, 1, 1}}); err == nil || !strings.Contains(err.Error(), "t.csv") {
		t.Error(err)
	}
}
