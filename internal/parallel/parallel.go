// Package parallel spreads independent work over the processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do(0) to do(n-1), on all processors. After an error it begins no further call.
// It returns the error of the smallest index, once all calls have returned.
func Each(n int, do func(k int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		workers.Go(func() {
			for k := int(next.Add(1)) - 1; k < n && !failed.Load(); k = int(next.Add(1)) - 1 {
				if errs[k] = do(k); errs[k] != nil {
					failed.Store(true)
				}
			}
		})
	}
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
