package clusterfile

import (
	"encoding/json"
	"os"
	"testing"
)

// The words of a deadline are read alike here and in evenkeel.tuner.deadline.fault (python/tests/test_deadline.py).
func TestDeadlineTextVectors(t *testing.T) {
	data, err := os.ReadFile("../../internal/vectors/deadline-text.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Accepted, Refused []string }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Accepted) < 20 || len(file.Refused) < 30 {
		t.Fatalf("%d accepted, %d refused", len(file.Accepted), len(file.Refused))
	}
	for _, s := range file.Accepted {
		if _, err := ParseDeadline(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range file.Refused {
		if d, err := ParseDeadline(s); err == nil {
			t.Errorf("%q is taken as %+v", s, *d)
		}
	}
}
