//go:build race

package agenttest

// UnderRace says that the race detector is on, which makes training ten times slower.
const UnderRace = true
