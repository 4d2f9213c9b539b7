package planner

import (
	"context"
	"testing"

	"github.com/evenkeel/evenkeel/planner/internal/invented"
)

// All global batches together have one limit of work: 24 alone takes nearly all of it.
func TestExhaustOneLimit(t *testing.T) {
	p, top, err := invented.FourClasses()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		batches []int
		all     bool
	}{{[]int{24}, true}, {[]int{13, 24}, false}} {
		j, err := NewJob(p, top, Options{GlobalBatches: c.batches})
		if err != nil {
			t.Fatal(err)
		}
		var r Result
		if _, err := j.exhaust(context.Background(), nil, &r); err != nil || r.Exhausted != c.all {
			t.Errorf("%v: every plan tried: %v, %v", c.batches, r.Exhausted, err)
		}
	}
}
