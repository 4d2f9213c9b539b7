//go:build !race

package agenttest

// UnderRace says that the race detector is on.
const UnderRace = false
