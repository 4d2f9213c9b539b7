package episode

import (
	"errors"
	"runtime"
	"sync"
)

// StepAll takes one step in every episode, on all processors; actions and steps are
// in the order of episodes. The result does not depend on how many processors there are.
func StepAll(episodes []*Episode, actions [][]int) ([]Step, error) {
	steps, errs := make([]Step, len(episodes)), make([]error, len(episodes))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(episodes)) {
		workers.Go(func() {
			for k := range next {
				steps[k], errs[k] = episodes[k].Step(actions[k])
			}
		})
	}
	for k := range episodes {
		next <- k
	}
	close(next)
	workers.Wait()
	return steps, errors.Join(errs...)
}
