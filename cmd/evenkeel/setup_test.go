package main

import (
	"testing"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

// A trainer gets the global batch that the policy chose, for all nodes, and the file's
// where it may not choose.
func TestSettledBatch(t *testing.T) {
	_, c, err := cluster.Load("../../cluster/testdata/choices.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	fixed := *c
	fixed.Choices = cluster.Choices{}
	for _, x := range []struct {
		c     *cluster.Cluster
		sizes []int
		batch int
	}{
		{c, []int{30, 30, 30, 30}, 120}, {c, []int{40, 40, 40, 0}, 120}, {c, nil, 96}, {c, []int{10, 10, 10, 10}, 96},
		{&fixed, nil, 96}, {&fixed, []int{30, 30, 30, 30}, 96},
	} {
		s, err := settled(x.c, x.sizes, c.Nominal())
		if err != nil || s.GlobalBatch != x.batch || s.Validate() != nil || c.GlobalBatch != 96 {
			t.Errorf("%v: %+v, %v", x.sizes, s, err)
		}
	}
}
