package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// workerSteps is how many steps a worker of twoProcesses takes.
const workerSteps = 30

// worker runs both processors of a pair one after the other in each step, or one of them, against a partner that answers
// at once, and prints the seconds.
func worker(both bool) error {
	net, set, err := large()
	if err != nil {
		return err
	}
	c := config(2, 1, workerSteps, 1)
	c.Examples = []int{16}
	var all []*forward.Processor
	for rank := range 2 {
		if rank == 0 || both {
			r, _, err := replica(c, net, set.Len())
			if err != nil {
				return err
			}
			all = append(all, &forward.Processor{Replica: r, Rank: rank, Model: forward.NewModel(net), Data: set, Bus: newEcho(rank)})
		}
	}
	begun := time.Now()
	for _, p := range all {
		if err := p.Run(context.Background()); err != nil {
			return err
		}
	}
	fmt.Println(time.Since(begun).Seconds())
	return nil
}

// twoProcesses is how much faster two workers side by side are than one that does the work of both, sorted.
func twoProcesses() ([]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	start := func(mode string) (*exec.Cmd, *bytes.Buffer, error) {
		cmd, out := exec.Command(self, "-worker", mode), &bytes.Buffer{}
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "GOMAXPROCS=1"), out, os.Stderr
		return cmd, out, cmd.Start()
	}
	slowest := func(modes ...string) (float64, error) {
		var cmds []*exec.Cmd
		var outs []*bytes.Buffer
		for _, m := range modes {
			cmd, out, err := start(m)
			if err != nil {
				return 0, err
			}
			cmds, outs = append(cmds, cmd), append(outs, out)
		}
		most := 0.0
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				return 0, err
			}
			var s float64
			if _, err := fmt.Fscan(outs[i], &s); err != nil {
				return 0, err
			}
			most = max(most, s)
		}
		return most, nil
	}
	var ratios []float64
	for range 5 {
		one, err := slowest("both")
		if err != nil {
			return nil, err
		}
		two, err := slowest("one", "one")
		if err != nil {
			return nil, err
		}
		ratios = append(ratios, one/two)
	}
	slices.Sort(ratios)
	return ratios, nil
}

// large is a network of 4.2 million weights and made-up data.
func large() (*train.Network, data.Set, error) {
	net, err := train.MLP(1024, 1600, 1600, 10)
	if err != nil {
		return nil, nil, err
	}
	made, err := data.NewSynthetic(1000, 1024, 10, 1)
	if err != nil {
		return nil, nil, err
	}
	set := &kept{Set: made, inputs: make([]float32, 1000*1024), targets: make([]int32, 1000)}
	for i := range 1000 {
		made.Sample(i, set.inputs[i*1024:][:1024], set.targets[i:][:1])
	}
	return net, set, nil
}

// kept holds samples in memory, as data are that need not be made up first.
type kept struct {
	data.Set
	inputs  []float32
	targets []int32
}

func (k *kept) Sample(i int, inputs []float32, targets []int32) {
	copy(inputs, k.inputs[i*1024:])
	targets[0] = k.targets[i]
}

// costs measures a step of a network of 4.2 million weights against its own forward pass and against one of float32
// weights, in turns, and the memory of both.
func costs(_ *world, b *strings.Builder) error {
	net, set, err := large()
	if err != nil {
		return err
	}
	const steps, examples, cold = 200, 16, 5
	inference, ours, err := memories(net, set, examples) // first, so that tables made once count
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\n## What a step costs\n\nMLP 1024-1600-1600-10, 4.2 million weights, %d examples an input, one direction; %d steps, on all cores. A whole step (move, forward pass, take back and update, exchange) over a forward pass of two inputs, both in the same step: median (quartiles). Target 1.25.\n\n| directions of | over its own pass, from fixed point | over a pass of float32 weights |\n|---|---|---|\n", examples, steps-cold)
	for _, kind := range []forward.Kind{forward.Rademacher, forward.Gaussian} {
		c := config(2, 1, steps, 1)
		c.Examples, c.Kind = []int{examples}, kind
		timed := &timedModel{Model: forward.NewModel(net)}
		weights, _, err := replica(c, net, set.Len())
		if err != nil {
			return err
		}
		floats, err := weights.Weights.Values(net)
		if err != nil {
			return err
		}
		pass, err := net.NewPass(2*examples, false, nil)
		if err != nil {
			return err
		}
		var own, float []float64
		step := 0
		begun := time.Now()
		p := &forward.Processor{Replica: weights, Model: timed, Data: set, Bus: newEcho(0), Patience: time.Hour, Each: func(int, forward.Commit) error {
			whole := time.Since(begun).Seconds()
			begun = time.Now()
			_, err := pass.Loss(floats, timed.batch)
			if step++; step > cold { // the first ones find cold memory
				own, float = append(own, whole/timed.seconds), append(float, whole/time.Since(begun).Seconds())
			}
			begun = time.Now()
			return err
		}}
		if err := p.Run(context.Background()); err != nil {
			return err
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", map[forward.Kind]string{forward.Rademacher: "signs", forward.Gaussian: "normal numbers"}[kind], quartiles(own), quartiles(float))
	}
	speedup, err := twoProcesses()
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "\nTwo processes, a processor each, against one process with both, each process on one core: median %.2f times as fast (%.2f to %.2f in five turns); target 1.8 on idle cores.\n", speedup[2], speedup[0], speedup[4])
	fmt.Fprintf(b, "\nMemory, all that was allocated from nothing to the end of the first pass or step (so the peak is no higher): inference (float32 weights and activations) %.2f MB, a forward-only processor %.2f MB: %.3f of it; target 1.02 and a tile (64 kB).\n", inference/1e6, ours/1e6, ours/inference)
	return nil
}

// quartiles are the median and, in brackets, the quartiles.
func quartiles(x []float64) string {
	slices.Sort(x)
	at := func(q float64) float64 { return x[int(q*float64(len(x)-1))] }
	return fmt.Sprintf("%.3f (%.3f to %.3f)", at(0.5), at(0.25), at(0.75))
}

// echo answers every frame with a partner's, so that one processor runs alone.
type echo struct {
	forward.Bus
	partner forward.Bus
}

func newEcho(rank int) echo {
	memory := forward.NewMemory()
	return echo{memory.Reader(rank), memory.Reader(1 - rank)}
}

func (e echo) Publish(ctx context.Context, frame []byte) error {
	f, err := forward.DecodeFrame(frame)
	if err != nil {
		return err
	}
	f.Rank = 1 - f.Rank
	return errors.Join(e.Bus.Publish(ctx, frame), e.partner.Publish(ctx, f.Encode(nil)))
}

// timedModel notes how long the last forward pass took, and its batch.
type timedModel struct {
	forward.Model
	seconds float64
	batch   train.Batch
}

func (m *timedModel) Losses(w *forward.Weights, b train.Batch) ([2]float32, error) {
	begun := time.Now()
	l, err := m.Model.Losses(w, b)
	m.seconds, m.batch = time.Since(begun).Seconds(), b
	return l, err
}

// memories measures what the heap had to give for a pass, and for a step.
func memories(net *train.Network, set data.Set, examples int) (inference, ours float64, err error) {
	allocated := func(work func() error) (float64, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := work()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc) - float64(before.TotalAlloc), err
	}
	batch := train.Batch{Inputs: make([]float32, 2*examples*net.InputSize()), Targets: make([]int32, 2*examples)}
	inference, err = allocated(func() error {
		v, err := net.NewValues(nil)
		if err != nil {
			return err
		}
		net.Initialize(v, rand.New(rand.NewPCG(1, 2)))
		pass, err := net.NewPass(2*examples, false, nil)
		if err != nil {
			return err
		}
		_, err = pass.Loss(v, batch)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	inference += float64(4 * len(batch.Inputs)) // a processor gathers its own
	ours, err = allocated(func() error {
		c := config(2, 1, 1, 1)
		c.Examples = []int{examples}
		r, _, err := replica(c, net, set.Len())
		if err != nil {
			return err
		}
		p := &forward.Processor{Replica: r, Model: forward.NewModel(net), Data: set, Bus: newEcho(0)}
		return p.Run(context.Background())
	})
	return inference, ours, err
}
