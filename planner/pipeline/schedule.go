package pipeline

import "fmt"

// Schedule is the order in which a stage works on its micro-batches.
type Schedule int

// GPipe runs every forward pass, then every backward pass; OneForwardOneBackward (1F1B) alternates after a warm-up. Interleaved is 1F1B
// with several stages on each device. ZeroBubble is ZB-H1: the gradients of weights are passes of their own. SentAhead is H-1F1B:
// 1F1B with as many forward passes before the first backward pass as each stage is told.
const (
	OneForwardOneBackward Schedule = iota
	GPipe
	Interleaved
	ZeroBubble
	SentAhead
)

// String is the schedule's name in plan files.
func (s Schedule) String() string {
	names := []string{"1f1b", "gpipe", "interleaved", "zb-h1", "h-1f1b"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("schedule %d", int(s))
	}
	return names[s]
}
