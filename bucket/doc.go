// Package bucket batches samples of unequal lengths so that every rank of a synchronous
// data-parallel job finishes each step at the same time, with no step out of memory.
//
// Package lengthfile reads the lengths of a data set. A Cost predicts what a step takes; stepcost.New makes one from a table of
// measured steps. Make plans, and the plan's Schedule cuts the epochs. Judge scores any schedule. See the Examples. Package even divides a given batch. Errors that are the
// fault of a file or a setting have a method BadInput() bool.
//
// The method follows Huawei, training method for sequence models: durations are recorded by length and batch size, an anchor
// duration is chosen among them, each length gets the largest batch that lasts no longer, and steps take batches of any length.
// Config.Mixing says how random the order is, Recurrence how often samples that share a step do so again.
package bucket
