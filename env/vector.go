package env

import (
	"errors"
	"runtime"
	"sync"
)

// StepAll takes one step in every environment, on all processors; actions and steps are
// in the order of envs. The result does not depend on how many processors there are.
func StepAll(envs []*Env, actions [][]int) ([]Step, error) {
	steps, errs := make([]Step, len(envs)), make([]error, len(envs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(envs)) {
		workers.Go(func() {
			for k := range next {
				steps[k], errs[k] = envs[k].Step(actions[k])
			}
		})
	}
	for k := range envs {
		next <- k
	}
	close(next)
	workers.Wait()
	return steps, errors.Join(errs...)
}
