package train_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"evenkeel/checkpoint"
	"evenkeel/train"
)

// saved is a trainer that saves, the storage, and its file.
func saved(t *testing.T, net *train.Network, d train.Data, c train.Config, s train.SaveConfig, o checkpoint.Options) (*train.Trainer, *checkpoint.File, *checkpoint.Memory) {
	t.Helper()
	tr := trainer(t, net, d, c)
	m := checkpoint.NewMemory(nil)
	f, err := checkpoint.CreateOn(m, tr.Arrays(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.SaveTo(f, s); err != nil {
		t.Fatal(err)
	}
	return tr, f, m
}

func finish(t *testing.T, tr *train.Trainer, f *checkpoint.File) {
	t.Helper()
	if err := errors.Join(tr.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A run that is interrupted anywhere, once or often, goes on to the same bits: weights, moments, order of the data.
func TestResume(t *testing.T) {
	training, _ := digits(t)
	net := must(train.Convnet(8, 8, 1, 10, 3, 4))
	c := train.Config{MicroBatches: []int{150, 250, 3}, Seed: 8} // more than a quarter of the data: orders change
	undisturbed := trainer(t, net, training, c)
	want := run(t, undisturbed, 12)
	for _, mode := range []checkpoint.Mode{checkpoint.ZeroCopy, checkpoint.Staged} {
		for _, sequential := range []bool{false, true} {
			c.Sequential = sequential
			o := checkpoint.Options{Mode: mode, WhenFull: checkpoint.Block}
			var durable []uint64
			var mu sync.Mutex
			s := train.SaveConfig{Every: 1, Durable: func(step uint64) {
				mu.Lock()
				defer mu.Unlock()
				durable = append(durable, step)
			}}
			tr, f, m := saved(t, net, training, c, s, o)
			got := run(t, tr, 1)
			for _, steps := range []int{3, 0, 2, 4, 2} {
				got = append(got, run(t, tr, steps)...)
				finish(t, tr, f)
				tr = trainer(t, net, training, c)
				var err error
				if f, err = checkpoint.OpenOn(checkpoint.NewMemory(m.Contents()), tr.Arrays(), o); err != nil {
					t.Fatal(err)
				}
				report, err := tr.Restore(f)
				if err != nil || tr.Steps() != uint64(len(got)) || report.Restored < 0 {
					t.Fatalf("restored step %d after %d: %+v, %v", tr.Steps(), len(got), report, err)
				}
				f.Close()
				m = checkpoint.NewMemory(m.Contents())
				if f, err = checkpoint.OpenOn(m, tr.Arrays(), o); err != nil {
					t.Fatal(err)
				}
				if _, err := tr.Restore(f); err != nil {
					t.Fatal(err)
				}
				if err := tr.SaveTo(f, s); err != nil {
					t.Fatal(err)
				}
			}
			finish(t, tr, f)
			if !slices.Equal(got, want) || !slices.Equal(bits(tr), bits(undisturbed)) {
				t.Errorf("mode %d, sequential %v: losses %v, undisturbed %v", mode, sequential, got, want)
			}
			if len(durable) != 12 || !slices.IsSorted(durable) {
				t.Errorf("durable were told %v", durable)
			}
		}
	}
}

// What is saved is the state after its step, not one that later updates have reached into.
func TestEveryStepIsOneStep(t *testing.T) {
	training, _ := digits(t)
	net := must(train.MLP(64, 300, 200, 10))
	c := train.Config{MicroBatches: []int{2, 2}}
	for _, mode := range []checkpoint.Mode{checkpoint.ZeroCopy, checkpoint.Staged} {
		tr, f, _ := saved(t, net, training, c, train.SaveConfig{Every: 1}, checkpoint.Options{Mode: mode, Slots: 5, WhenFull: checkpoint.Block})
		run(t, tr, 9)
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		slots := f.Slots()
		slices.SortFunc(slots, func(a, b checkpoint.SlotReport) int { return int(b.Step) - int(a.Step) })
		for _, slot := range slots { // newest first: RestoreStep gives up those that are newer
			if slot.Sequence == 0 {
				continue // free for the next save
			}
			restored, other := trainer(t, net, training, c), trainer(t, net, training, c)
			if _, _, err := f.RestoreStep(restored.Arrays(), slot.Step); err != nil {
				t.Fatal(err)
			}
			run(t, other, int(slot.Step))
			if !slices.Equal(bits(restored), bits(other)) {
				t.Errorf("mode %d: step %d is not what that step gave", mode, slot.Step)
			}
		}
		finish(t, tr, f)
	}
}

func TestRestoreOtherRun(t *testing.T) {
	training, held := digits(t)
	net := must(train.MLP(64, 5, 10))
	c := train.Config{MicroBatches: []int{4, 4}, Optimizer: adam}
	tr, f, _ := saved(t, net, training, c, train.SaveConfig{Every: 1}, checkpoint.Options{})
	if _, err := tr.Restore(f); !errors.Is(err, checkpoint.ErrEmpty) {
		t.Errorf("an empty file: %v", err)
	}
	run(t, tr, 2)
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	defer finish(t, tr, f)
	change := func(do func(*train.Config)) train.Config {
		other := c
		other.MicroBatches = slices.Clone(c.MicroBatches)
		do(&other)
		return other
	}
	for want, other := range map[string]*train.Trainer{
		"seed":          trainer(t, net, training, change(func(c *train.Config) { c.Seed = 9 })),
		"nodes":         trainer(t, net, training, change(func(c *train.Config) { c.MicroBatches = []int{8} })),
		"micro_batch.1": trainer(t, net, training, change(func(c *train.Config) { c.MicroBatches[1] = 5 })),
		"rate":          trainer(t, net, training, change(func(c *train.Config) { c.Optimizer.Rate = 0.5 })),
		"samples":       trainer(t, net, held, c),
	} {
		if _, err := other.Restore(f); !errors.Is(err, train.ErrUsage) || !strings.Contains(err.Error(), "with "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := trainer(t, must(train.MLP(64, 6, 10)), training, c).Restore(f); !errors.Is(err, checkpoint.ErrSchema) {
		t.Errorf("another network: %v", err)
	}
}

// broken is a storage that fails from the second commit on.
type broken struct {
	*checkpoint.Memory
	flushes int
}

func (b *broken) Flush() error {
	if b.flushes++; b.flushes > 12 {
		return errors.New("no disk")
	}
	return nil
}

// Training hears of a save that failed; what was durable before is still there.
func TestFailingStorage(t *testing.T) {
	training, _ := digits(t)
	for _, sequential := range []bool{false, true} {
		tr := trainer(t, must(train.MLP(64, 5, 10)), training, train.Config{MicroBatches: []int{4}, Sequential: sequential})
		b := &broken{Memory: checkpoint.NewMemory(nil)}
		f, err := checkpoint.CreateOn(b, tr.Arrays(), checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		durable := uint64(0)
		if err := tr.SaveTo(f, train.SaveConfig{Every: 1, Durable: func(s uint64) { durable = s }}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if _, err = tr.Step(context.Background()); err != nil {
				break
			}
		}
		if err = errors.Join(err, tr.Close()); err == nil || !strings.Contains(err.Error(), "no disk") {
			t.Errorf("sequential %v: %v", sequential, err)
		}
		_ = f.Close()
		again := trainer(t, must(train.MLP(64, 5, 10)), training, train.Config{MicroBatches: []int{4}})
		if f, err = checkpoint.OpenOn(checkpoint.NewMemory(b.Contents()), again.Arrays(), checkpoint.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Restore(f); err != nil || again.Steps() < durable || durable == 0 {
			t.Errorf("restored step %d, durable was %d, %v", again.Steps(), durable, err)
		}
		f.Close()
	}
}

// Save keeps what an interval has left out, on a real file.
func TestSaveAtTheEnd(t *testing.T) {
	training, _ := digits(t)
	path := filepath.Join(t.TempDir(), "run.ckpt")
	net := must(train.MLP(64, 5, 10))
	c := train.Config{MicroBatches: []int{4, 2}}
	tr := trainer(t, net, training, c)
	f, err := checkpoint.Create(path, tr.Arrays(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.SaveTo(f, train.SaveConfig{Every: 4}); err != nil {
		t.Fatal(err)
	}
	run(t, tr, 7)
	if err := tr.Save(context.Background()); err != nil {
		t.Fatal(err)
	}
	steps := fmt.Sprint(f.Slots())
	if err := tr.Save(context.Background()); err != nil || steps != fmt.Sprint(f.Slots()) {
		t.Errorf("saved twice: %v", err)
	}
	finish(t, tr, f)
	again := trainer(t, net, training, c)
	if f, err = checkpoint.Open(path, again.Arrays(), checkpoint.Options{}); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := again.Restore(f); err != nil || again.Steps() != 7 || !slices.Equal(bits(again), bits(tr)) {
		t.Errorf("step %d, %v", again.Steps(), err)
	}
	if err := tr.SaveTo(f, train.SaveConfig{Every: -1}); !errors.Is(err, train.ErrUsage) {
		t.Error(err)
	}
}

// A state that found no slot is not told to be durable.
func TestSaveWithoutSlot(t *testing.T) {
	training, _ := digits(t)
	var durable []uint64
	tr, f, _ := saved(t, must(train.MLP(64, 5, 10)), training, train.Config{MicroBatches: []int{4}},
		train.SaveConfig{Every: 100, Durable: func(s uint64) { durable = append(durable, s) }},
		checkpoint.Options{Ranks: 2, ID: [16]byte{1}}) // no rank acknowledges, so slots stay taken
	for step := range 5 {
		run(t, tr, 1)
		if err := tr.Save(context.Background()); (err == nil) != (step < 3) || err != nil && !errors.Is(err, checkpoint.ErrBusy) {
			t.Errorf("step %d: %v", step+1, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(durable, []uint64{1, 2, 3}) {
		t.Errorf("durable were told %v; three slots hold 1, 2, 3", durable)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A save is spread over the step that follows it, and a trainer that is closed, or saves at the end, does not wait for that.
func TestSavesAreSpread(t *testing.T) {
	training, _ := digits(t)
	net := must(train.Convnet(8, 8, 1, 10, 3, 4))
	for _, sequential := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // computing takes no time
			c := train.Config{MicroBatches: []int{16, 8}, Seed: 8, Sequential: sequential}
			tr, f, _ := saved(t, net, training, c, train.SaveConfig{Every: 1}, checkpoint.Options{})
			for range 3 {
				run(t, tr, 1)
				time.Sleep(100 * time.Second)
			}
			begun := time.Now()
			run(t, tr, 1)
			time.Sleep(40 * time.Second)
			if n, want := f.Stats().Committed, 3; (n == want) == sequential {
				t.Errorf("sequential %v: %d saves are durable 40 s after a step that has 100", sequential, n)
			}
			finish(t, tr, f)
			if d := time.Since(begun); d != 40*time.Second {
				t.Errorf("it was closed after %v", d)
			}
		})
	}
}
