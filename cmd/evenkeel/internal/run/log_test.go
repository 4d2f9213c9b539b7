package run

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/runlog"
)

// outsiders is a cluster under a deadline of which one node is too slow to take part, and
// all others fall silent now and then.
const outsiders = `
workload: llama-3b-512-fp16
global_batch: 100
nodes:
  - {device: a10g, count: 3, micro_batch: 4}
  - {device: t4, name: far, link: 1Mbps}
collect: {deadline: auto}
conditions: {noise: {median: 0.05}, failures: {rate: 0.1, rounds: 2, silent: 1}}
`

// written writes a cluster file.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "my.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The log says round by round who was left out and why, and a run under deadlines replays.
func TestLogSaysWhoIsLeftOut(t *testing.T) {
	r := smallRun(64)
	r.Cluster, r.Log = written(t, outsiders), filepath.Join(t.TempDir(), "run.jsonl")
	if _, err := inProcess(t, t.Context(), r); err != nil {
		t.Fatal(err)
	}
	again := &Cmd{Replay: r.Log}
	if text, err := inProcess(t, t.Context(), again); err != nil || !strings.Contains(text, "64 rounds replayed, every report the same") {
		t.Error(err, text)
	}
	f, err := os.Open(r.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := runlog.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]int{}
	probes, lost := 0, make([]int, 4) // in a row, of the rounds before
	for {
		e, err := log.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		probes += len(e.Probe)
		out := map[int]string{}
		for _, l := range e.LeftOut {
			why[l.Why]++
			out[l.Node] = l.Why
			if e.Sizes[l.Node] != 0 || e.Report.Nodes[l.Node].Status != 0 {
				t.Errorf("round %d: node %d is left out with %d samples", e.Report.Round, l.Node, e.Sizes[l.Node])
			}
		}
		if e.Sizes[3] == 0 && out[3] != "too slow" {
			t.Errorf("round %d: far has no share: %q", e.Report.Round, out[3])
		}
		for i := range lost {
			if lost[i] >= 2 && e.Sizes[i] == 0 && e.Report.Nodes[i].Status == 0 && out[i] == "" {
				t.Errorf("round %d: node %d was lost %d times and has no share, and no reason", e.Report.Round, i, lost[i])
			}
			switch e.Report.Nodes[i].Status {
			case 1:
				lost[i] = 0
			case 4:
				lost[i]++
			}
		}
	}
	e := &ExportCmd{Format: "json", Log: r.Log}
	text, notes, err := withNotes(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, `"left_out":"too slow"`) || !strings.Contains(notes, "no share for far: the others finish a round sooner alone") ||
		!regexp.MustCompile(`when .*run.jsonl ended, no gradient had come from a10g-\d`).MatchString(notes) {
		t.Error(text, notes)
	}
	if why["too slow"] < 50 || why["silent"] < 1 || probes < 4 {
		t.Errorf("left out: %v; %d probes", why, probes)
	}
}

// The live view shows shares as micro-steps, the deadline, what was handed in, and who is
// left out and why; each frame goes over the one before, and the cursor comes back.
func TestLiveView(t *testing.T) {
	r := smallRun(4)
	r.Cluster = written(t, strings.Replace(outsiders, "rate: 0.1", "rate: 0", 1))
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w, err := r.prepare(cli.NewApp(t.Context(), out, os.Stderr), "")
	if err != nil {
		t.Fatal(err)
	}
	w.references = &references{}
	v := newLiveView(w)
	if err := w.run(v); err != nil {
		t.Fatal(err)
	}
	v.close()
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	frames := strings.Split(string(data), "\r")
	if len(frames) < 3 {
		t.Fatalf("%d frames: %q", len(frames), data)
	}
	for k, f := range frames[1 : len(frames)-1] {
		up := regexp.MustCompile(`\x1b\[(\d+)A$`).FindStringSubmatch(f)
		if up == nil || up[1] != strconv.Itoa(strings.Count(f, "\n")) {
			t.Errorf("frame %d of %d lines ends in %q", k+1, strings.Count(f, "\n"), up)
		}
	}
	last := regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`).ReplaceAllString(frames[len(frames)-1], "")
	for _, want := range []string{
		`(?m)^round 4/4   time [0-9.]+ s   idle [0-9.]+%   [0-9.]+ samples/s$`,
		`(?m)^deadline [0-9.]+ s   handed in \d+ of 100 samples$`,
		`(?m)^a10g-0 .* 3\d = [89]x4\S* .*  in$`,
		`(?m)^far .* too slow$`,
	} {
		if !regexp.MustCompile(want).MatchString(last) {
			t.Errorf("no %s in\n%s", want, last)
		}
	}
	if !strings.HasSuffix(string(data), "\x1b[?25h") || !strings.Contains(frames[0], "\x1b[?25l") {
		t.Errorf("the cursor is not hidden and shown again: %q", data)
	}
}

// withNotes runs a command and returns what it prints and what it says on standard error.
func withNotes(t *testing.T, command interface{ Run(*cli.App) error }) (out, notes string, failed error) {
	t.Helper()
	files := make([]*os.File, 2)
	for k := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), strconv.Itoa(k)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[k] = f
	}
	failed = command.Run(cli.NewApp(t.Context(), files[0], files[1]))
	texts := make([]string, 2)
	for k, f := range files {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[k] = string(data)
	}
	return texts[0], texts[1], failed
}
