//go:build !race

package ddqn

const underRace = false
