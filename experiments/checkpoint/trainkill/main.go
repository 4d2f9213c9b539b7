// Command trainkill trains a real network, saving every step layer by layer, and ends the process by SIGKILL at random
// moments, again and again: while it starts, creates the file, restores, computes, saves. Every process that follows must restore, bit
// for bit, the weights and moments of the undisturbed run at a step not before the last that was reported durable;
// every run that finishes must end in the undisturbed run's bits. The file is then removed and a new run
// begins, in the other way of saving.
//
//	go run ./experiments/checkpoint/trainkill -kills 5000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/zeebo/xxh3"

	"evenkeel/checkpoint"
	"evenkeel/experiments/internal/program"
	"evenkeel/train"
	"evenkeel/train/data"
)

func main() {
	kills := flag.Int("kills", 5000, "how often to kill")
	seed := flag.Uint64("seed", 1, "of the moments")
	child := flag.String("child", "", "be the process that trains, on this file")
	staged := flag.Bool("staged", false, "with -child: staged saves")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		if *child != "" {
			return trainOn(*child, *staged)
		}
		begun := time.Now()
		r, err := run(ctx, *kills, *seed, func(path string, staged bool) []string {
			return []string{os.Args[0], "-child", path, fmt.Sprintf("-staged=%v", staged)}
		}, func(done int) {
			if done%250 == 0 {
				left := time.Since(begun) / time.Duration(done) * time.Duration(*kills-done)
				fmt.Fprintf(os.Stderr, "%d of %d kills, %s left\n", done, *kills, left.Round(time.Second))
			}
		})
		fmt.Println(r)
		return err
	})
}

// steps of a run.
const steps = 150

// newTrainer is the same at every call: a network of 8 layers' parameters on three uneven nodes.
func newTrainer() (*train.Trainer, error) {
	d, err := data.Digits()
	if err != nil {
		return nil, err
	}
	net, err := train.MLP(64, 40, 64, 30, 10)
	if err != nil {
		return nil, err
	}
	return train.New(net, d, train.Config{MicroBatches: []int{7, 3, 5}, Seed: 11, Optimizer: train.Optimizer{Method: train.AdamW, Rate: 0.002}})
}

// digest is of all bits of the state.
func digest(t *train.Trainer) string {
	h := xxh3.New()
	for _, a := range t.Arrays() {
		_, _ = h.Write(a.Data) // never fails
	}
	sum := h.Sum128().Bytes()
	return fmt.Sprintf("%x %d", sum, t.Samples())
}

// undisturbed is the digests after each step, the one before the first included.
func undisturbed() ([]string, error) {
	t, err := newTrainer()
	if err != nil {
		return nil, err
	}
	out := []string{digest(t)}
	for range steps {
		if _, err := t.Step(context.Background()); err != nil {
			return nil, err
		}
		out = append(out, digest(t))
	}
	return out, nil
}

// trainOn is the process that is killed. It reports on standard output what it restored and what is durable.
func trainOn(path string, staged bool) (err error) {
	t, err := newTrainer()
	if err != nil {
		return err
	}
	o := checkpoint.Options{WhenFull: checkpoint.Block}
	if staged {
		o.Mode = checkpoint.Staged
	}
	f, err := checkpoint.Open(path, t.Arrays(), o)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err = checkpoint.Create(path, t.Arrays(), o)
	case err == nil:
		if _, err = t.Restore(f); errors.Is(err, checkpoint.ErrEmpty) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return trainAndSave(t, f)
}

func trainAndSave(t *train.Trainer, f *checkpoint.File) error {
	say := func(format string, args ...any) { _, _ = fmt.Printf(format+"\n", args...) } // unbuffered; the parent may be gone
	say("restored %d %s", t.Steps(), digest(t))
	err := t.SaveTo(f, train.SaveConfig{Every: 1, Durable: func(step uint64) { say("durable %d", step) }})
	for err == nil && t.Steps() < steps {
		_, err = t.Step(context.Background())
	}
	if err = errors.Join(err, t.Close(), f.Close()); err == nil {
		say("done %d %s", t.Steps(), digest(t))
	}
	return err
}
