// Package pipeline simulates one iteration of a training pipeline, pass by pass, from the times of its stages alone: when each stage computes and
// sends, and how long the iteration takes. Orders says which passes each device makes under a schedule (1F1B, interleaved 1F1B, ZB-H1, H-1F1B),
// Simulate gives them times, and NewTimeline lays them out for a figure or a trace. Ends is the quick way to the length of an iteration by 1F1B.
// See the Example.
package pipeline
