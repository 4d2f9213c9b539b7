package clusterfile

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

func TestFileSteps(t *testing.T) {
	_, c := mustLoad(t, "testdata/steps.yaml")
	var got []string
	for i := range c.Nodes {
		n := &c.Nodes[i]
		got = append(got, fmt.Sprint(n.Least, n.Limit, n.Shapes))
	}
	open := &c.Nodes[2]
	if want := fmt.Sprint([]string{"1 8 []", "2 6 []", fmt.Sprintf("2 %d []", open.Profile.MemoryLimit(24<<30-16*3536246400/4)), "0 4 [1 2 4]"}); fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	if want := (cluster.Collect{DeadlineShare: 1.1, Reserve: 0.1, Overtime: 0.25, Whole: true}); c.Collect != want || !c.Collect.Timed() {
		t.Errorf("%+v", c.Collect)
	}
	sizes := make([]int, len(c.Nodes))
	if _, err := cluster.Allocate(c, nil, c.Nominal(), sizes); err != nil || sizes[0]+sizes[1]+sizes[2]+sizes[3] != 1000 {
		t.Errorf("%v, %v", sizes, err)
	}
}

// The number of equal micro-steps is given, or follows from the profiles.
func TestFileEqualSteps(t *testing.T) {
	for text, want := range map[string]int{"4": 4, "auto": 2, "auto\ncollect: {quorum: 1}": 2} {
		source := "workload: resnet-50\nglobal_batch: 256\nnodes: [{device: v100, count: 2, micro_batch: {most: 64}}]\nequal_steps: " + text + "\n"
		_, c, err := Read(strings.NewReader(source), "c.yaml", profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		if c.EqualSteps() != want {
			t.Errorf("%s: %d", text, c.EqualSteps())
		}
	}
}

// Every form of a deadline reads.
func TestFileDeadline(t *testing.T) {
	for text, want := range map[string]cluster.Collect{
		"deadline: auto":                            {AutoDeadline: true, Reserve: cluster.DefaultReserve},
		"deadline: 2.5s":                            {Deadline: 2500 * time.Millisecond, Reserve: cluster.DefaultReserve},
		"deadline: 0.9\n  micro_steps: cut":         {DeadlineShare: 0.9, Reserve: cluster.DefaultReserve},
		"deadline: 2s\n  quorum: all\n  reserve: 0": {Deadline: 2 * time.Second, Quorum: cluster.Quorum{Share: 1}},
		"timeout: 10s":                              {Timeout: 10 * time.Second},
		"deadline: auto\n  timeout: 300%":           {AutoDeadline: true, Reserve: cluster.DefaultReserve, TimeoutShare: 3},
		"deadline: 1.1\n  timeout: 1m":              {DeadlineShare: 1.1, Reserve: cluster.DefaultReserve, Timeout: time.Minute},
	} {
		source := "workload: resnet-50\nglobal_batch: 256\nnodes: [{device: v100, count: 2}]\ncollect:\n  " + text + "\n"
		_, c, err := Read(strings.NewReader(source), "c.yaml", profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		if c.Collect != want {
			t.Errorf("%s: %+v", text, c.Collect)
		}
	}
	if _, err := ParseDeadline("soon"); err == nil {
		t.Error("accepted")
	}
	if d, err := ParseDeadline("1.5"); err != nil || d.Share != 1.5 {
		t.Error(d, err)
	}
}

// A deadline that no micro-step of a node meets names the node.
func TestDeadlineTooShort(t *testing.T) {
	source := "workload: resnet-50\nglobal_batch: 256\nnodes: [{device: v100}, {device: k80, link: {latency: 3s}}]\ncollect: {deadline: 2s}\n"
	_, _, err := Read(bytes.NewReader([]byte(source)), "c.yaml", profile.Embedded())
	if err == nil || !strings.Contains(err.Error(), "c.yaml:4: cluster: invalid file: collect.deadline: is 2s, but the smallest micro-step of k80-0 (k80), of 1 sample, takes 3.1") {
		t.Error(err)
	}
}
