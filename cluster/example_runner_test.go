package cluster_test

import (
	"context"
	"fmt"
	"time"

	"evenkeel/cluster"
)

// workshop is a Runner of one's own: nodes that take a fixed time per sample. A real one
// would hand shares to workers and read the clock where this one computes due.
type workshop struct {
	perSample []time.Duration
	due       []time.Duration // when a node will be done
	now       time.Duration
	round     int
	recorder  *cluster.Recorder
}

// Present is cluster.Runner's.
func (w *workshop) Present() []bool { return []bool{true, true, true} }

// Round is cluster.Runner's.
func (w *workshop) Round(_ context.Context, plan cluster.Plan) (*cluster.Report, error) {
	w.recorder.Open(w.round, w.now, plan.Collect, w.Present())
	w.round++
	for {
		first := -1
		for i, size := range plan.Sizes {
			if w.recorder.Waiting(i) {
				w.recorder.HandOut(i, size, w.now)
				w.due[i] = w.now + time.Duration(size)*w.perSample[i]
			}
			if _, busy := w.recorder.Share(i); busy && (first < 0 || w.due[i] < w.due[first]) {
				first = i
			}
		}
		if end, closed := w.recorder.Closed(); closed {
			w.now = end
			return w.recorder.Report(), nil
		}
		if limit, limited := w.recorder.Limit(); limited && w.due[first] > limit {
			w.recorder.Expire()
			continue
		}
		w.now = w.due[first]
		share, _ := w.recorder.Share(first)
		w.recorder.Receive(first, w.now, cluster.Gradient{Samples: share.Size})
	}
}

// A Runner of one's own, under the simplest policy: believe the last measurement.
func ExampleNewRecorder() {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 96, Nodes: []cluster.Node{
		{Name: "fast", Limit: 96}, {Name: "middle", Limit: 96}, {Name: "slow", Limit: 96},
	}}
	var runner cluster.Runner = &workshop{
		perSample: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond},
		due:       make([]time.Duration, 3), recorder: cluster.NewRecorder(c),
	}
	perf, sizes := c.Nominal(), make([]int, 3)
	for range 2 {
		if _, err := cluster.Allocate(c, runner.Present(), perf, sizes); err != nil {
			fmt.Println(err)
			return
		}
		report, err := runner.Round(context.Background(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(sizes, "wait", report.Wait)
		for i := range report.Nodes {
			if n := &report.Nodes[i]; n.Measured() {
				fmt.Printf("  %-6s %-4v %d samples, idle %.2f s\n", c.Nodes[i].Name, n.Status, n.Samples, n.Idle)
				perf[i] = c.Nodes[i].Slowed(perf[i], c.Nodes[i].Slowness(perf[i], n))
			}
		}
	}
	// Output:
	// [32 32 32] wait 1.92s
	//   fast   in   32 samples, idle 1.60 s
	//   middle in   32 samples, idle 1.28 s
	//   slow   in   32 samples, idle 0.00 s
	// [58 29 9] wait 580ms
	//   fast   in   58 samples, idle 0.00 s
	//   middle in   29 samples, idle 0.00 s
	//   slow   in   9 samples, idle 0.04 s
}
