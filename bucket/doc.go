// Package bucket batches samples of unequal lengths so that every rank of a synchronous
// data-parallel job finishes each step at the same time, with no step out of memory.
//
// ReadLengths reads the lengths of a data set; a Cost says what a step takes: stepcost.New makes one of a table of measured
// steps. Make plans (MakePairs where samples have a source and a target), and the plan's Schedule cuts the epochs. Judge scores any schedule. See the Examples.
//
// The dispatch follows Huawei, training method for sequence models: durations are recorded by length and batch size, an anchor
// duration is chosen among them, each length gets the largest batch that lasts no longer, and steps take batches of any length.
// Config.Mixing says how random the order is, Plan.Recurrence how often samples that share a step meet again.
package bucket
