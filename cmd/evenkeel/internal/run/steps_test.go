package run

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cmd/evenkeel/internal/cli"
)

func TestInSteps(t *testing.T) {
	n := &cluster.Node{Limit: 8}
	for share, want := range map[int]string{0: "0", 5: "5", 8: "8", 24: "24 = 3x8", 9: "9 = 1x8+1", 47: "47 = 5x8+7"} {
		if got := inSteps(n, share); got != want {
			t.Errorf("%d: %q, want %q", share, got, want)
		}
	}
}

// A run whose shares are micro-steps until a deadline shows them, what was handed in, and who
// is left out and why; the document has the same.
func TestRunShowsMicroSteps(t *testing.T) {
	const file = `
workload: llama-3b-512-fp16
global_batch: 100
nodes:
  - {device: a10g, count: 2, micro_batch: 4}
  - {device: t4, name: far, link: 1Mbps}
collect: {deadline: auto}
`
	r := smallRun(3)
	r.Cluster = written(t, file)
	text, err := inProcess(t, t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^round +time +idle +samples/s +changed +in  deadline  samples  slowest$`,
		`(?m)^ +3 +[0-9.]+ s +\S+ +\S+ +\d+ +2/2 +[0-9.]+ s +\d+  a10g-\d`,
		`(?m)^node .* slowdown  done  status$`,
		`(?m)^a10g-0 .* 5\d = 1\dx4\S* .* 5\d  in$`,
		`(?m)^far .* too slow$`,
		`Rounds end at a deadline: [0-9.]+ samples were handed in per round in the mean, the global batch is 100\.`,
		`Left out at the end: far: the others finish sooner without it\.`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	r.JSON = true
	if text, err = inProcess(t, t.Context(), r); err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if out := d.Sizes[2]; out.LeftOut != "too slow" || out.Share != 0 || out.MicroBatch != 0 || out.Samples != 0 || d.Deadline <= 0 {
		t.Errorf("%+v", d)
	}
	for _, n := range d.Sizes[:2] {
		if n.MicroBatch != 4 || n.MicroSteps != (n.Share+3)/4 || n.Share < 40 || n.Samples < 40 || n.LeftOut != "" {
			t.Errorf("%+v", n)
		}
	}
}

// Only a deadline that the file fixes, and that is far from what the batch takes, gets the hint.
func TestSamplesFarOffTheBatch(t *testing.T) {
	for name, x := range map[string]struct {
		collect  cluster.Collect
		accepted int // in two rounds
		want     string
	}{
		"waits":       {cluster.Collect{}, 200, ""},
		"fixed, far":  {cluster.Collect{Deadline: 1}, 100, "50.0 samples were handed in per round in the mean, the global batch is 100. With deadline: auto it is met."},
		"fixed, more": {cluster.Collect{DeadlineShare: 1.2}, 230, "115.0 samples were handed in per round in the mean, the global batch is 100. With deadline: auto it is met."},
		"fixed, near": {cluster.Collect{DeadlineShare: 1}, 190, "95.0 samples were handed in per round in the mean, the global batch is 100."},
		"auto":        {cluster.Collect{AutoDeadline: true}, 100, "50.0 samples were handed in per round in the mean, the global batch is 100."},
	} {
		w := &watch{setup: &setup{cluster: &cluster.Cluster{GlobalBatch: 100, Collect: x.collect}}}
		w.history.rounds = []moment{{accepted: 1}, {accepted: x.accepted}}
		got := strings.Join(w.samplesOfRounds(), "|")
		if want := strings.TrimSuffix("Rounds end at a deadline: "+x.want, "Rounds end at a deadline: "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// Of a log alone the deadline is that of its rounds; an automatic one follows from the new
// shares, a fixed one stays.
func TestDeadlineOfALog(t *testing.T) {
	for name, x := range map[string]struct{ logged, want cluster.Collect }{
		"none":  {cluster.Collect{}, cluster.Collect{}},
		"auto":  {cluster.Collect{AutoDeadline: true, Deadline: 5, Reserve: 0.02, Overtime: 0.1}, cluster.Collect{AutoDeadline: true, Reserve: 0.02, Overtime: 0.1}},
		"share": {cluster.Collect{DeadlineShare: 1.1, Deadline: 5, Whole: true}, cluster.Collect{DeadlineShare: 1.1, Whole: true}},
		"fixed": {cluster.Collect{Deadline: 5}, cluster.Collect{Deadline: 5}},
	} {
		c := &cluster.Cluster{Collect: cluster.Collect{AutoDeadline: true, Reserve: 0.5}}
		if deadlineOf(c, &x.logged); c.Collect != x.want {
			t.Errorf("%s: %+v", name, c.Collect)
		}
	}
}

// On a terminal of 80 columns the nodes keep their bars: the device goes, if the names say it.
func TestBarsOnANarrowTerminal(t *testing.T) {
	for _, x := range []struct {
		name         string
		width        int
		device, bars bool
	}{{"", 120, true, true}, {"", 79, false, true}, {"", 60, false, false}, {"rank", 79, true, false}} {
		r := smallRun(1)
		w, err := r.prepare(cli.NewApp(t.Context(), devNull(t), devNull(t)), "")
		if err != nil {
			t.Fatal(err)
		}
		if x.name != "" {
			for i := range w.setup.cluster.Nodes {
				w.setup.cluster.Nodes[i].Name = fmt.Sprintf("%s-of-job-%d", x.name, i)
			}
		}
		w.references = &references{}
		if err := w.run(newQuietView(w)); err != nil {
			t.Fatal(err)
		}
		lines := w.nodes(mostRows, x.width, paint(false))
		if device, bars := strings.Contains(lines[0], " device "), strings.Contains(lines[0], " works "); device != x.device || bars != x.bars {
			t.Errorf("%q, %d columns: %q", x.name, x.width, lines[0])
		}
		for _, l := range lines {
			if x.width > 60 && cli.Visible(l) > x.width {
				t.Errorf("%d columns: %q", x.width, l)
			}
		}
	}
}
