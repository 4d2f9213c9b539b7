// Package bucket batches samples of unequal lengths so that every rank of a synchronous
// data-parallel job finishes each step at the same time, with no step out of memory.
//
// ReadLengths reads the lengths of a data set; a Cost says what a step takes: stepcost.New makes one of a table of measured
// steps. Make plans, and the plan's Schedule cuts the epochs. Judge scores any schedule. See the Examples.
//
// The anchor search follows Huawei, training method for sequence models: each length gets
// the batch size that was recorded with the longest duration up to an anchor duration T,
// and T is moved until the epoch is shortest. Beside it stands dispatch by sorted
// duration: batches of the most efficient size, sorted by predicted duration and dealt to
// the ranks in groups. The mode with the smaller predicted epoch time is the default.
package bucket
