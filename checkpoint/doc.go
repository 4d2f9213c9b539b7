// Package checkpoint saves the named arrays of a program, step after step, into one file of fixed size that always
// holds at least one complete checkpoint. Arrays are saved one by one as a step finishes them, in memory format, while
// the program goes on computing; a checkpoint counts once it is complete and on the storage, and a reader verifies
// every byte before it believes it.
//
// In the order of use:
//
//	arrays := []checkpoint.Array{checkpoint.Of("dense.weight", checkpoint.Parameter, weight, 784, 10), ...}
//	f, err := checkpoint.Create("run.ckpt", arrays, checkpoint.Options{}) // once
//	f, err := checkpoint.Open("run.ckpt", arrays, checkpoint.Options{})   // every other time
//	state, report, err := f.Restore(arrays)                               // newest verified checkpoint, or ErrEmpty
//
//	for step := state.Step + 1; ; step++ {
//		save, err := f.Begin(ctx, step) // nil where this step is skipped: all its methods do nothing
//		for layer := last; layer >= 0; layer-- {
//			gradient(layer)
//			f.Ready(layer.Name)             // the save of the step before has read this array
//			update(layer)
//			err = save.Write(layer.Name, bytes) // returns at once; leave the array alone until Ready
//		}
//		err = save.Commit(checkpoint.State{Step: step, Random: r}) // returns at once
//	}
//	err = f.Close() // waits for what is under way
//
// Save.Wait waits until its checkpoint is on the storage; whoever needs a synchronous save calls it after Commit. A
// save that fails in the background is told by the next Begin, or by Close.
//
// The method is that of Huawei Cloud's patent "model training method and apparatus" (a layer's parameters are saved
// to persistent memory as soon as they are updated, into one of two storage spaces). Departures: the patent takes the
// first of its storage spaces after an interruption; here it is the newest one that verifies. There are three spaces
// (slots) by default, so that one can be written while another is being made durable.
//
// docs/reference/formats/checkpoint.md describes the file byte by byte, docs/guides/checkpoint.md how to work with it.
package checkpoint
