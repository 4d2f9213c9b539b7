//go:build race

package train_test

// underRace says that the race detector is on, under which a sync.Pool drops what it is given now and then.
const underRace = true
