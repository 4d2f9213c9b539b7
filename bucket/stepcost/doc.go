// Package stepcost predicts how long a training step takes and whether it fits into memory, from the length of its samples and its batch size. It
// learns that from a table of steps that were tried, as evenkeel.bucket.profile writes it: see the Example.
package stepcost
