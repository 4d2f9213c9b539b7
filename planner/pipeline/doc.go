// Package pipeline simulates one iteration of a training pipeline, pass by pass, from the times of its stages: when each stage
// computes and sends, and how long the iteration takes. Orders lists the passes of each device under a schedule (1F1B,
// interleaved 1F1B, ZB-H1, H-1F1B), Simulate gives them times, and NewTimeline arranges them for a figure or a trace. Ends
// computes the length of an iteration under 1F1B quickly. See the Example.
package pipeline
