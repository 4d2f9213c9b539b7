//go:build race

package ddqn

// underRace says that the race detector is on, under which the learning floors take minutes and show nothing more.
const underRace = true
