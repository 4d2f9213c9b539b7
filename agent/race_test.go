//go:build race

package agent

// underRace says that the race detector is on, which makes training ten times slower.
const underRace = true
