// Command powerloss lets the power fail at every write and every sync of a series of saves, on a file system of its
// own (FUSE) that then keeps what was synced and any part of the rest, as LazyFS does it. Each time the checkpoint is
// opened anew and restored: the state must be bit for bit that of a step not before the last one that was reported
// durable, and nothing may look damaged. Linux with /dev/fuse, as root or with fusermount3.
//
//	cd experiments/checkpoint/powerloss && go run .
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"evenkeel/checkpoint"
)

func main() {
	steps := flag.Int("steps", 8, "saves before the end")
	repeat := flag.Int("repeat", 4, "losses at each operation, each keeps other sectors")
	flag.Parse()
	if err := run(uint64(*steps), *repeat); err != nil {
		fmt.Fprintln(os.Stderr, "powerloss:", err)
		os.Exit(1)
	}
}

// model is the state of a step, each array from the step and its name alone.
func model(step uint64) []checkpoint.Array {
	var arrays []checkpoint.Array
	for k, n := range []int{50_000, 700, 1, 33_000} {
		r := rand.New(rand.NewPCG(step, uint64(k)))
		data := make([]uint64, n)
		for i := range data {
			data[i] = r.Uint64()
		}
		arrays = append(arrays, checkpoint.Of(fmt.Sprintf("array%d", k), checkpoint.Parameter, data))
	}
	return arrays
}

func run(steps uint64, repeat int) error {
	folder, err := os.MkdirTemp("", "powerloss")
	if err != nil {
		return err
	}
	defer os.Remove(folder)
	d := &disk{}
	server, err := fs.Mount(folder, d, &fs.Options{MountOptions: fuse.MountOptions{DirectMount: true, FsName: "powerloss"}})
	if err != nil {
		return fmt.Errorf("mount: %w; this needs /dev/fuse", err)
	}
	defer server.Unmount()
	path := filepath.Join(folder, name)

	memory := checkpoint.NewMemory(nil)
	f, err := checkpoint.CreateOn(memory, model(0), checkpoint.Options{})
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	image := memory.Contents()

	r := rand.New(rand.NewPCG(1, 2))
	losses, counted := 0, map[string]int{}
	for _, mode := range []string{"restore", "restore and go on", "overlapping saves"} {
		series := series
		if mode == "overlapping saves" {
			series = overlapping
		}
		d.insert(image, 0)
		if acked, err := series(path, steps); err != nil || acked != steps {
			return fmt.Errorf("the undisturbed run: %d of %d steps: %w", acked, steps, err)
		}
		kinds := slices.Clone(d.observed)
		for at := 1; at <= len(kinds); at++ {
			for range repeat {
				d.insert(image, at)
				acked, _ := series(path, steps) // it ends with the disk's error
				d.powerOn(r)
				got, err := restored(path, acked, mode != "restore")
				if err != nil {
					return fmt.Errorf("power lost at operation %d (%s), %d acknowledged, %d restored: %w", at, kinds[at-1], acked, got, err)
				}
				losses++
				counted[kinds[at-1]]++
			}
		}
	}
	fmt.Printf("%d losses of power in %d saves: %d at a write, %d at a sync; every restore was whole and not before the last acknowledged step\n",
		losses, steps, counted["write"], counted["sync"])
	return nil
}

// series saves steps until an error, and returns the last that was reported durable.
func series(path string, steps uint64) (acked uint64, err error) {
	f, err := checkpoint.Open(path, model(0), checkpoint.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // the disk may be off
	if _, _, err := f.Restore(model(0)); err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
		return 0, err
	}
	for step := uint64(1); step <= steps; step++ {
		if err := save(f, step); err != nil {
			return acked, err
		}
		acked = step
	}
	return acked, nil
}

// overlapping is series with saves that begin while earlier ones are written.
func overlapping(path string, steps uint64) (acked uint64, err error) {
	f, err := checkpoint.Open(path, model(0), checkpoint.Options{WhenFull: checkpoint.Block})
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // the disk may be off
	if _, _, err := f.Restore(model(0)); err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
		return 0, err
	}
	var saves []*checkpoint.Save
	for step := uint64(1); step <= steps && err == nil; step++ {
		var s *checkpoint.Save
		if s, err = begin(f, step); s != nil {
			saves = append(saves, s)
		}
	}
	for i, s := range saves { // what was reported by now
		if fault := s.Wait(context.Background()); fault != nil {
			return acked, fault
		}
		acked = uint64(i + 1)
	}
	return acked, err
}

func save(f *checkpoint.File, step uint64) error {
	s, err := begin(f, step)
	if err != nil {
		return err
	}
	return s.Wait(context.Background())
}

func begin(f *checkpoint.File, step uint64) (*checkpoint.Save, error) {
	s, err := f.Begin(context.Background(), step)
	if err != nil {
		return nil, err
	}
	for _, a := range model(step) {
		if err := s.Write(a.Name, a.Data); err != nil {
			return nil, err
		}
	}
	return s, s.Commit(checkpoint.State{Random: binary.LittleEndian.AppendUint64(nil, step)})
}

// restored checks what is found after the loss, and that saving goes on from there.
func restored(path string, acked uint64, goOn bool) (uint64, error) {
	f, err := checkpoint.Open(path, model(0), checkpoint.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // its saves were waited for
	step, err := whole(f)
	if errors.Is(err, checkpoint.ErrEmpty) && acked == 0 {
		err = nil
	}
	if err != nil {
		return 0, err
	}
	if step < acked {
		return step, errors.New("an acknowledged step is lost")
	}
	report, err := f.Verify()
	if err != nil {
		return step, err
	}
	if len(report.Damage) > 0 {
		return step, fmt.Errorf("looks damaged: %q", report.Damage)
	}
	for _, s := range report.Slots {
		if s.Fault != "" {
			return step, fmt.Errorf("looks damaged: %s", s.Fault)
		}
	}
	if !goOn {
		return step, nil
	}
	if err := save(f, step+1); err != nil {
		return step, err
	}
	if next, err := whole(f); err != nil || next != step+1 {
		return step, fmt.Errorf("after going on: step %d, %w", next, err)
	}
	return step, nil
}

func whole(f *checkpoint.File) (uint64, error) {
	arrays := model(0)
	state, _, err := f.Restore(arrays)
	if err != nil {
		return 0, err
	}
	for i, a := range model(state.Step) {
		if !bytes.Equal(a.Data, arrays[i].Data) {
			return state.Step, fmt.Errorf("array %s is of another step", a.Name)
		}
	}
	if binary.LittleEndian.Uint64(state.Random) != state.Step {
		return state.Step, errors.New("the random state is of another step")
	}
	return state.Step, nil
}
