package main

import (
	"context"
	"testing"
)

// The workers sleep 0.5, 1 and 2 ms a sample: equal finish times are 4:2:1 of the batch.
// Other programs may hold a worker up, so the test asks for the order and the sum.
func TestSizesFollowSpeeds(t *testing.T) {
	sizes, err := run(context.Background(), 30)
	if err != nil {
		t.Fatal(err)
	}
	if sizes[0]+sizes[1]+sizes[2] != 120 {
		t.Errorf("sizes %v do not sum to 120", sizes)
	}
	if sizes[0] <= sizes[1] || sizes[1] <= sizes[2] {
		t.Errorf("sizes %v, want the faster to take more", sizes)
	}
}
