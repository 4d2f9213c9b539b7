package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"evenkeel/checkpoint"
)

// A training loop that saves every step: it creates its file once, goes on with the newest checkpoint ever after, and
// hands each layer over as soon as it is updated.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "run.ckpt")

	for range 2 { // the second time it goes on
		if err := train(path); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// step 0: start from the beginning
	// step 3: weights [3 3 3]
}

func train(path string) error {
	ctx := context.Background()
	weights, bias := make([]float32, 3), make([]float64, 1)
	arrays := []checkpoint.Array{
		checkpoint.Of("layer.weight", checkpoint.Parameter, weights),
		checkpoint.Of("layer.bias", checkpoint.Parameter, bias),
	}
	f, err := checkpoint.Open(path, arrays, checkpoint.Options{})
	if errors.Is(err, os.ErrNotExist) {
		f, err = checkpoint.Create(path, arrays, checkpoint.Options{})
	}
	if err != nil {
		return err
	}
	state, _, err := f.Restore(arrays)
	switch {
	case errors.Is(err, checkpoint.ErrEmpty):
		fmt.Println("step 0: start from the beginning")
	case err != nil:
		return errors.Join(err, f.Close())
	default:
		fmt.Printf("step %d: weights %v\n", state.Step, weights)
	}
	for step := state.Step + 1; step <= 3; step++ {
		save, err := f.Begin(ctx, step) // nil where this step is skipped: all its methods do nothing
		if err != nil {
			return errors.Join(err, f.Close())
		}
		for i := len(arrays) - 1; i >= 0; i-- { // as the backward pass does, from the last layer on
			f.Ready(arrays[i].Name) // the save of the step before has read this array
			update(weights, bias, arrays[i].Name)
			if err := save.Write(arrays[i].Name, arrays[i].Data); err != nil { // returns at once
				return errors.Join(err, f.Close())
			}
		}
		if err := save.Commit(checkpoint.State{Step: step, Cursor: 32 * step}); err != nil { // returns at once
			return errors.Join(err, f.Close())
		}
		if step == 3 { // only to save the last step for certain: Wait returns once it is durable
			if err := save.Wait(ctx); err != nil {
				return errors.Join(err, f.Close())
			}
		}
	}
	return f.Close() // waits for what is under way, and returns its error
}

func update(weights []float32, bias []float64, name string) {
	if name == "layer.bias" {
		bias[0]++
		return
	}
	for i := range weights {
		weights[i]++
	}
}

// saveStep saves arrays and waits until they are durable.
func saveStep(f *checkpoint.File, arrays []checkpoint.Array, step uint64) error {
	s, err := f.Begin(context.Background(), step)
	if err != nil {
		return err
	}
	for _, a := range arrays {
		if err := s.Write(a.Name, a.Data); err != nil {
			return err
		}
	}
	if err := s.Commit(checkpoint.State{Step: step}); err != nil {
		return err
	}
	return s.Wait(context.Background())
}

// What Begin does when every slot is taken is an option: with Fail the caller decides, with Skip, the default, the step is
// not saved, with Block it waits. Here two processes hold a part each, and a slot is reused only once all have committed.
func ExampleFile_Acknowledge() {
	weights := make([]float32, 4)
	arrays := []checkpoint.Array{checkpoint.Of("weight", checkpoint.Parameter, weights, 2, 2)}
	f, err := checkpoint.CreateOn(checkpoint.NewMemory(nil), arrays, checkpoint.Options{
		Slots: 2, Rank: 0, Ranks: 2, ID: [16]byte{1}, WhenFull: checkpoint.Fail,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	for step := uint64(1); step <= 3; step++ {
		err := saveStep(f, arrays, step)
		if errors.Is(err, checkpoint.ErrBusy) {
			fmt.Printf("step %d: the others have not committed yet\n", step)
			// A collective operation of the job says that all have committed step 2.
			if err := f.Acknowledge(2); err != nil {
				fmt.Println(err)
			}
			err = saveStep(f, arrays, step)
		}
		fmt.Printf("step %d: %v\n", step, err)
	}
	// All agree to go back to step 2.
	state, _, err := f.RestoreStep(arrays, 2)
	fmt.Println("restored step", state.Step, err)
	// Output:
	// step 1: <nil>
	// step 2: <nil>
	// step 3: the others have not committed yet
	// step 3: <nil>
	// restored step 2 <nil>
}

// One process writes several files at the same time, each with a share of the arrays.
func ExampleCreateSet() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	a, b := []int64{1, 2, 3}, []uint8{4}
	arrays := []checkpoint.Array{checkpoint.Of("a", checkpoint.Parameter, a), checkpoint.Of("b", checkpoint.Buffer, b)}
	parts, err := checkpoint.Stripe(arrays, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(parts[0][0].Name, "in the first file,", parts[1][0].Name, "in the second")
	set, err := checkpoint.CreateSet([]string{filepath.Join(dir, "0.ckpt"), filepath.Join(dir, "1.ckpt")}, arrays, checkpoint.Options{Mode: checkpoint.Staged})
	if err != nil {
		fmt.Println(err)
		return
	}
	save, err := set.Begin(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, x := range arrays {
		if err := save.Write(x.Name, x.Data); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("committed:", save.Commit(checkpoint.State{Step: 1}))
	set.Ready("a") // its memory may be changed now
	a[0] = 7
	fmt.Println("durable:", save.Wait(context.Background()))
	state, _, err := set.Restore(arrays)
	fmt.Println("step", state.Step, "a", a, err)
	fmt.Println("closed:", set.Close())
	// Output:
	// a in the first file, b in the second
	// committed: <nil>
	// durable: <nil>
	// step 1 a [1 2 3] <nil>
	// closed: <nil>
}

// Errors say what to do: a save without all arrays, a file that was not restored, options that cannot be.
func ExampleSave_Commit() {
	weights := make([]float64, 2)
	arrays := []checkpoint.Array{checkpoint.Of("weight", checkpoint.Parameter, weights)}
	memory := checkpoint.NewMemory(nil)
	f, err := checkpoint.CreateOn(memory, arrays, checkpoint.Options{WhenFull: checkpoint.Skip})
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := f.Begin(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(errors.Is(s.Commit(checkpoint.State{Step: 1}), checkpoint.ErrIncomplete))
	fmt.Println(saveStep(f, arrays, 1), f.Close())

	f, err = checkpoint.OpenOn(memory, arrays, checkpoint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = f.Begin(context.Background(), 2)
	fmt.Println(errors.Is(err, checkpoint.ErrNotRestored), f.Close())
	fmt.Println(checkpoint.Options{Slots: 1}.Validate())
	// Output:
	// true
	// <nil> <nil>
	// true <nil>
	// options: ["Slots is 1, must be 2 to 16"]: checkpoint: invalid use
}

// A checkpoint as a safetensors file, which PyTorch and most other programs read, with arrays of any type.
func ExampleWriteSafetensors() {
	half, err := checkpoint.ParseDType("F16")
	if err != nil {
		fmt.Println(err)
		return
	}
	arrays := []checkpoint.Array{
		{Name: "half", DType: half, Shape: []int{2}, Kind: checkpoint.Parameter, Data: make([]byte, 2*half.Size())},
		checkpoint.Of("mean", checkpoint.Buffer, []float32{1.5}),
	}
	var file bytes.Buffer
	if err := checkpoint.WriteSafetensors(&file, arrays, checkpoint.State{Step: 9}); err != nil {
		fmt.Println(err)
		return
	}
	read, state, err := checkpoint.ReadSafetensors(&file, int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range read {
		fmt.Println(a.Name, a.DType, a.Shape, a.Kind)
	}
	fmt.Println("step", state.Step)
	// Output:
	// mean F32 [1] buffer
	// half F16 [2] parameter
	// step 9
}

// tensor is an array of a program's own memory.
func tensor[T checkpoint.Number](name string, data []T) checkpoint.Array {
	return checkpoint.Of(name, checkpoint.Moment, data)
}

// The types of elements; Of finds that of a slice.
func ExampleOf() {
	for _, d := range []checkpoint.DType{
		checkpoint.F16, checkpoint.BF16, checkpoint.F32, checkpoint.F64, checkpoint.I8, checkpoint.I16, checkpoint.I32, checkpoint.I64,
		checkpoint.U8, checkpoint.U16, checkpoint.U32, checkpoint.U64, checkpoint.Bool,
	} {
		fmt.Print(" ", d, " ", d.Size())
	}
	fmt.Println()
	fmt.Println(tensor("m", []int16{1, 2}).DType, tensor("v", []float32{1}).DType)
	// Output:
	// F16 2 BF16 2 F32 4 F64 8 I8 1 I16 2 I32 4 I64 8 U8 1 U16 2 U32 4 U64 8 BOOL 1
	// I16 F32
}

// What to do about a file that does not open or restore.
func ExampleOpen() {
	_, err := checkpoint.OpenOn(checkpoint.NewMemory(make([]byte, 8192)), nil, checkpoint.Options{})
	switch {
	case errors.Is(err, checkpoint.ErrLocked):
		fmt.Println("another process writes it: wait, or open it with Options.ReadOnly")
	case errors.Is(err, checkpoint.ErrVersion), errors.Is(err, checkpoint.ErrEndian):
		fmt.Println("written by another version or another kind of machine: export it there")
	case errors.Is(err, checkpoint.ErrFormat):
		fmt.Println("not a checkpoint file")
	case errors.Is(err, checkpoint.ErrSchema):
		fmt.Println("another model's")
	case errors.Is(err, checkpoint.ErrCorrupt):
		fmt.Println("damaged")
	case errors.Is(err, checkpoint.ErrPoisoned):
		fmt.Println("the disk fails: move to another")
	case errors.Is(err, checkpoint.ErrUsage):
		fmt.Println("a fault of the program")
	}
	// Output: not a checkpoint file
}
