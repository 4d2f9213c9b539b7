//go:build !race

package agent

const underRace = false
