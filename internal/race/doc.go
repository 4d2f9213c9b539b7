// Package race tells tests whether they run under the race detector, which makes code many times slower and lets a
// sync.Pool drop what it is given.
package race
