// Package checkpoint saves the named arrays of a program, step after step, into one file of fixed size, which after the
// first save has at least one complete checkpoint. Arrays are saved one by one as a step finishes them, in memory format,
// while the program goes on computing. A checkpoint counts once it is complete and on the storage, and a reader verifies
// every byte before it uses it.
//
// In the order of use: Create makes the file once, Open opens it later, and Restore fills the arrays from the newest
// verified checkpoint or returns ErrEmpty. Then, in every step, Begin starts a save, which is nil if the step is
// skipped. For each layer, Ready waits until the last save has read the array, and Write hands the updated
// array over and returns at once. Commit completes the save in the background. The Example is such a loop.
//
// Save.Wait waits until its checkpoint is on the storage; for a synchronous save, call it after Commit. The
// error of a save that fails in the background is returned by the next Begin, or by Close.
//
// The method is that of Huawei Cloud's patent "model training method and apparatus" (a layer's parameters are saved
// to persistent memory as soon as they are updated, into one of two storage spaces). Departures: after an interruption
// the patent takes the first of its storage spaces, and this package the newest one that verifies. There are three spaces
// (slots) by default, so that one can be written while another is being made durable.
//
// docs/reference/formats/checkpoint.md describes the file byte by byte, docs/guides/checkpoint.md how to work with it.
package checkpoint
