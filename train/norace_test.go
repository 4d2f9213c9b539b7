//go:build !race

package train_test

const underRace = false
