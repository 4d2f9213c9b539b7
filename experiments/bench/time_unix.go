//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime is what this process has used of the processor.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it only fails for a wrong argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
