// Package stepcost predicts how long a training step takes and whether it fits into memory, from the length of its samples
// and its batch size. It learns that from a table of steps that were tried, and finds out which steps to try.
//
// ReadTable reads a table, Profile makes one by running steps, and New makes a Model of it, which is what
// bucket.Make plans with: see the Example.
package stepcost
