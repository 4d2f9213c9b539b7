// Command runner puts workers of its own under the trained agent: three goroutines that
// compute (here: sleep) at speeds that nobody told the agent. It finds the sizes with
// which all finish together, round by round, from the times that it sees.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/env"
)

// worker computes micro-batches at one speed.
type worker struct {
	perSample time.Duration
	work      chan int // samples to compute
}

// arrival is a gradient that a worker handed in.
type arrival struct{ node, samples int }

// workers are a cluster.Runner: they carry out rounds. The Recorder applies the round
// rule and fills in the report.
type workers struct {
	nodes    []worker
	arrivals chan arrival
	recorder *cluster.Recorder
	begun    time.Time
	round    int
}

// start runs a worker per node until ctx is done.
func start(ctx context.Context, c *cluster.Cluster, perSample ...time.Duration) *workers {
	w := &workers{arrivals: make(chan arrival), recorder: cluster.NewRecorder(c), begun: time.Now()}
	for i, d := range perSample {
		n := worker{d, make(chan int, 1)}
		w.nodes = append(w.nodes, n)
		go func() {
			for {
				select {
				case samples := <-n.work:
					time.Sleep(time.Duration(samples) * n.perSample) // the forward and backward pass
					select {
					case w.arrivals <- arrival{i, samples}:
					case <-ctx.Done():
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return w
}

// Present says that every node takes part in the next round.
func (w *workers) Present() []bool {
	present := make([]bool, len(w.nodes))
	for i := range present {
		present[i] = true
	}
	return present
}

// Round hands out shares and collects gradients until the round rule closes the round.
func (w *workers) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	w.recorder.Open(w.round, time.Since(w.begun), plan.Collect, w.Present())
	w.round++
	for {
		for i, size := range plan.Sizes {
			if w.recorder.Waiting(i) {
				w.recorder.HandOut(i, size, time.Since(w.begun))
				w.nodes[i].work <- size
			}
		}
		if _, closed := w.recorder.Closed(); closed {
			return w.recorder.Report(), nil
		}
		select { // this cluster waits for all; with a grace or a timeout, also wait for recorder.Limit
		case a := <-w.arrivals:
			w.recorder.Receive(a.node, time.Since(w.begun), cluster.Gradient{Samples: a.samples})
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, 30); err != nil {
		log.Fatal(err)
	}
}

// run makes rounds, prints some of them and returns the sizes of the last one.
func run(ctx context.Context, rounds int) ([]int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the workers
	c := &cluster.Cluster{Workload: "mine", GlobalBatch: 120, Nodes: []cluster.Node{
		{Name: "a", Limit: 120}, {Name: "b", Limit: 120}, {Name: "c", Limit: 120},
	}}
	trained, err := agent.Embedded()
	if err != nil {
		return nil, err
	}
	control := &agent.Control{
		Cluster: c,
		Runner:  start(ctx, c, 500*time.Microsecond, time.Millisecond, 2*time.Millisecond),
		Policy:  trained.NewAgent(c, [env.Objectives]float64{1}), // speed is all that counts
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "round\tsizes\tseconds\t")
	var sizes []int
	for i := range rounds {
		r, err := control.Round(ctx)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes[:0], r.Plan.Sizes...)
		if i < 5 || i == rounds-1 {
			fmt.Fprintf(table, "%d\t%v\t%.3f\t\n", i, sizes, r.Report.Wait.Seconds())
		}
	}
	return sizes, table.Flush()
}
