package main

import (
	"math"
	"runtime"
	"runtime/debug"
)

// subject is what is measured: an operation, and a plain twin whose time it is compared
// with. Both can be repeated at will.
type subject struct {
	name, twin string
	setup      func() (op, twin func() error, err error)
}

// measured is what was found of a subject.
type measured struct {
	Trials         int
	Median, Spread float64 // of the ratio to the twin's time
	allocs, bytes  uint64  // of one operation
}

// measure lets the subject and its twin take turns.
func measure(s subject, trials int) (measured, error) {
	op, twin, err := s.setup()
	if err != nil {
		return measured{}, err
	}
	m := measured{Trials: trials}
	if m.allocs, m.bytes, err = count(op); err != nil {
		return m, err
	}
	ops, err := repeats(op)
	if err != nil {
		return m, err
	}
	twins, err := repeats(twin)
	if err != nil {
		return m, err
	}
	ratios := make([]float64, trials)
	for i := range ratios {
		a, err := perOp(op, ops)
		if err != nil {
			return m, err
		}
		b, err := perOp(twin, twins)
		if err != nil {
			return m, err
		}
		ratios[i] = a / b
	}
	m.Median, m.Spread = median(ratios)
	return m, nil
}

// count returns what one operation allocates, once its buffers have grown. Whole numbers
// per operation, as go test counts, and the least of some blocks, so that what the runtime
// allocates now and then does not show.
func count(op func() error) (allocs, bytes uint64, err error) {
	const warm, n, blocks = 2, 5, 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what starts on more at once allocates more
	for range warm {
		if err := op(); err != nil {
			return 0, 0, err
		}
	}
	runtime.GC() // now, not in between
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	allocs, bytes = math.MaxUint64, math.MaxUint64
	for range blocks {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			if err := op(); err != nil {
				return 0, 0, err
			}
		}
		runtime.ReadMemStats(&after)
		allocs, bytes = min(allocs, (after.Mallocs-before.Mallocs)/n), min(bytes, (after.TotalAlloc-before.TotalAlloc)/n)
	}
	return allocs, bytes, nil
}

// repeats is how many operations take 20 ms.
func repeats(op func() error) (int, error) {
	const enough = 0.02
	for n := 1; ; n *= 2 {
		t, err := perOp(op, n)
		if err != nil || float64(n)*t >= enough {
			return n, err
		}
	}
}

// perOp is the seconds of one of n operations, of the processor where the system tells
// them, so that other programs do not count.
func perOp(op func() error, n int) (float64, error) {
	begun := processorTime()
	for range n {
		if err := op(); err != nil {
			return 0, err
		}
	}
	return (processorTime() - begun).Seconds() / float64(n), nil
}
