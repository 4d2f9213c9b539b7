package export

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
)

// steps is a cluster whose batch is many times its memory, with a deadline. A tenth of a
// T4's slowness more and it would be left out.
func deadlineRun(t failer, collect string) Run {
	file := `
workload: llama-3b-512-fp16
global_batch: 600
nodes:
  - {device: a100-40g, micro_batch: 8, link: 1Gbps}
  - {device: a10g, micro_batch: [2, 4]}
  - {device: t4, micro_batch: {least: 2, most: 4}}
` + collect
	_, c, err := clusterfile.Read(strings.NewReader(file), "steps.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return Run{Cluster: c, GlobalBatch: c.GlobalBatch, Performance: c.Nominal()}
}

func timed(t failer) Sizes {
	s, err := FromRun(deadlineRun(t, "collect: {deadline: auto}"), "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The deadline reaches every form, with what a rank needs to stop in time.
func TestDeadlineForms(t *testing.T) {
	s := timed(t)
	for _, f := range Formats() {
		if !f.Equal {
			golden.AssertBytes(t, write(t, f.Name, s), "deadline-"+f.Name+".golden")
		}
	}
	got, err := Read(bytes.NewReader(write(t, "json", s)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got, noLimit); d != "" {
		t.Error("json", d)
	}
}

// A deadline is the file's, a share of the predicted finish time, or that time.
func TestDeadlineSeconds(t *testing.T) {
	finish := 0.0
	auto := timed(t)
	for i, n := range auto.Nodes { // counted by hand: micro-steps by the profile, then the link
		node := deadlineRun(t, "").Cluster.Nodes[i]
		took := node.Network
		for left := n.Share; left > 0; left -= n.MicroBatch {
			took += node.Profile.Seconds(float64(min(left, n.MicroBatch)))
		}
		finish = max(finish, took)
		if want := node.Profile.Seconds(float64(n.MicroBatch)); math.Abs(n.Deadline.MicroStepSeconds/want-1) > 1e-12 {
			t.Errorf("%s: a micro-step of %v s, not %v", n.Name, n.Deadline.MicroStepSeconds, want)
		}
		if got := auto.Deadline.Seconds - n.Deadline.Seconds; math.Abs(got-node.Network) > 1e-12*auto.Deadline.Seconds {
			t.Errorf("%s: %v s for its link, not %v", n.Name, got, node.Network)
		}
	}
	for collect, want := range map[string]Deadline{
		"collect: {deadline: auto}":                     {finish, true, cluster.DefaultReserve, 0, cut},
		"collect: {deadline: 150%, micro_steps: whole}": {1.5 * finish, false, cluster.DefaultReserve, 0, whole},
		"collect: {deadline: 90s, reserve: 0}":          {90, false, 0, 0, cut},
		"collect: {deadline: 90s, overtime: 0.1}":       {90, false, cluster.DefaultReserve, 0.1, cut},
	} {
		s, err := FromRun(deadlineRun(t, collect), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := *s.Deadline; math.Abs(got.Seconds/want.Seconds-1) > 1e-12 || got.Auto != want.Auto || got.Reserve != want.Reserve || got.Overtime != want.Overtime || got.MicroSteps != want.MicroSteps {
			t.Errorf("%s: %+v, want %+v", collect, got, want)
		}
	}
	if s, err := FromRun(deadlineRun(t, ""), ""); err != nil || s.Deadline != nil || s.Nodes[0].Deadline != nil {
		t.Errorf("%v: a deadline that nobody asked for: %+v", err, s)
	}
}

func TestDeadlineFaults(t *testing.T) {
	for want, change := range map[string]func(*Sizes){
		"deadline.seconds: is 0":                     func(s *Sizes) { s.Deadline.Seconds = 0 },
		"deadline.seconds: is +Inf":                  func(s *Sizes) { s.Deadline.Seconds = math.Inf(1) },
		"deadline.reserve: is 1":                     func(s *Sizes) { s.Deadline.Reserve = 1 },
		"deadline.reserve: is NaN":                   func(s *Sizes) { s.Deadline.Reserve = math.NaN() },
		"deadline.overtime: is 2":                    func(s *Sizes) { s.Deadline.Overtime = 2 },
		"deadline.micro_steps: is \"half\"":          func(s *Sizes) { s.Deadline.MicroSteps = "half" },
		"nodes[1].deadline: must be given":           func(s *Sizes) { s.Nodes[1].Deadline = nil },
		"nodes[0].deadline: must be given":           func(s *Sizes) { s.Deadline = nil },
		"nodes[0].deadline.seconds: is -1":           func(s *Sizes) { s.Nodes[0].Deadline.Seconds = -1 },
		"nodes[0].deadline.seconds: is 1e+06":        func(s *Sizes) { s.Nodes[0].Deadline.Seconds = 1e6 },
		"nodes[2].deadline.micro_step_seconds: is 0": func(s *Sizes) { s.Nodes[2].Deadline.MicroStepSeconds = 0 },
		"nodes[2].deadline.least: is 0":              func(s *Sizes) { s.Nodes[2].Deadline.Least = 0 },
		"nodes[2].deadline.least: is 5":              func(s *Sizes) { s.Nodes[2].Deadline.Least = 5 },
		"nodes[1].deadline.sizes: must rise":         func(s *Sizes) { s.Nodes[1].Deadline.Sizes = []int{2, 3} },
		"nodes[1].deadline.sizes: must rise from":    func(s *Sizes) { s.Nodes[1].Deadline.Sizes = []int{1, 4} },
		"nodes[1].deadline.sizes: must rise from 2,": func(s *Sizes) { s.Nodes[1].Deadline.Sizes = []int{2, 2, 4} },
	} {
		s := timed(t)
		change(&s)
		want = strings.TrimSuffix(want, " from 2,")
		if err := s.Validate(); !errors.Is(err, ErrSizes) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A node without which the others finish sooner is no rank.
func TestLeftOut(t *testing.T) {
	r := deadlineRun(t, "")
	r.Performance[2].PerSample *= 1000
	s, err := FromRun(r, "")
	if err != nil || s.Validate() != nil {
		t.Fatal(err, s.Validate())
	}
	if n := s.Nodes[2]; n.Share != 0 || n.LeftOut != "too slow" || n.GradientWeight != 0 || len(s.Ranks()) != 2 {
		t.Errorf("%+v", n)
	}
	if !bytes.Contains(write(t, "json", s), []byte(`"share":0,"gradient_weight":0,"left_out":"too slow"`)) {
		t.Error("the file does not say why")
	}
}

// The predicted finish is that of the slowest node, wherever it stands.
func TestDeadlineOfTheSlowest(t *testing.T) {
	r := deadlineRun(t, "collect: {deadline: auto}")
	r.Sizes = []int{400, 100, 100}
	s, err := FromRun(r, "")
	if err != nil {
		t.Fatal(err)
	}
	first := &r.Cluster.Nodes[0]
	if want := first.Network + 50*first.Profile.Seconds(8); s.Nodes[0].Share != 400 || math.Abs(s.Deadline.Seconds/want-1) > 1e-12 {
		t.Errorf("%v s for %+v, want %v", s.Deadline.Seconds, s.Nodes[0], want)
	}
}

// Shares that differ are said to be unequal also where their mean is whole.
func TestDeepSpeedUnequal(t *testing.T) {
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 36, Nodes: []cluster.Node{{Name: "a", Device: "d", Limit: 8}, {Name: "b", Device: "d", Limit: 8}}}
	for first, want := range map[int]bool{24: true, 18: false} {
		if got := bytes.Contains(write(t, "deepspeed", New(c, []int{first, 36 - first})), []byte(`"unequal"`)); got != want {
			t.Errorf("%d and %d: unequal %v", first, 36-first, got)
		}
	}
}
