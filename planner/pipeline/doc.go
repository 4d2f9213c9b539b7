// Package pipeline simulates one iteration of a training pipeline, pass by pass, under the 1F1B or the GPipe schedule: when
// each stage computes and sends, and how long the iteration takes. See the Example.
package pipeline
