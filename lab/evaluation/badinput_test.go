package evaluation

import (
	"context"
	"testing"

	"evenkeel/agent/clusters"
	"evenkeel/internal/badinput"
)

// What a user can get wrong is marked as bad input.
func TestBadInput(t *testing.T) {
	_, err := Find([]string{"unifrom"})
	if !badinput.Is(err) {
		t.Errorf("unknown policy: %v", err)
	}
	if _, err = Compare(context.Background(), Config{Seeds: 1}); !badinput.Is(err) {
		t.Errorf("no rounds: %v", err)
	}
	if _, err = clusters.YAML("nowhere"); !badinput.Is(err) {
		t.Errorf("unknown cluster: %v", err)
	}
}
