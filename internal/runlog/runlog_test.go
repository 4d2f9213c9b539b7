package runlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/cluster/trace"
)

const text = `workload: llama-3b-512-fp16
global_batch: 40
nodes:
  - {device: a100-40g, power: {idle: 50, busy: 300.5}}
  - {device: a10g, profiled: false, slowdown: 1.5}
  - {device: t4, count: 3, link: 10Gbps}
collect: {quorum: 60%, grace: 20%, max_staleness: 30s}
`

// record simulates so many rounds under conditions, by the profiles alone, into a log.
func record(t testing.TB, conditions cluster.Conditions, seed uint64, rounds int) []byte {
	t.Helper()
	_, c, err := clusterfile.Read(strings.NewReader(text), "test", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	h := NewHeader(text, c)
	h.Evenkeel, h.Name, h.Conditions, h.Seed, h.Policy = "test", "test", conditions, seed, "none"
	var b bytes.Buffer
	w, err := newWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	s, perf, sizes := sim.New(c, conditions, seed), c.Nominal(), make([]int, len(c.Nodes))
	for k := range rounds {
		if _, err := cluster.Allocate(c, s.Present(), perf, sizes); err != nil {
			t.Fatal(err)
		}
		report, err := s.Round(t.Context(), cluster.Plan{Sizes: sizes, Collect: c.Collect})
		if err != nil {
			t.Fatal(err)
		}
		note := Note{}
		if k == 1 {
			note = Note{Weights: &cluster.Objectives{Speed: 0.5, Waiting: 2}, Explain: json.RawMessage(`{"node":"a<b","q":[1e-7]}`)}
		}
		if err := w.Round(cluster.Plan{Sizes: sizes, Collect: c.Collect}, perf, report, note); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func harsh(t testing.TB) cluster.Conditions {
	c, err := cluster.Preset("bursts")
	if err != nil {
		t.Fatal(err)
	}
	c.Failures = cluster.Failures{Rate: 0.01, Rounds: 4, Silent: 0.5}
	return c
}

// The log alone gives the same run again: late and lost nodes, hidden profiles and all.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rounds := rapid.IntRange(0, 60).Draw(rt, "rounds")
		log := record(t, harsh(t), rapid.Uint64().Draw(rt, "seed"), rounds)
		got, _, err := Replay(t.Context(), bytes.NewReader(log))
		if err != nil || got != rounds {
			rt.Fatalf("%d of %d rounds: %v", got, rounds, err)
		}
	})
}

// A log holds the trace that its conditions replay.
func TestReplayTrace(t *testing.T) {
	conditions := harsh(t)
	const times = "worker,round,ms\na,1,10\na,5,17\nb,1,12\nb,4,\"9\"\nb,7,30\nc,1,8\nc,9,9\n"
	columns := trace.Columns{Time: "ms"}
	tr, err := trace.Read(strings.NewReader(times), "t", columns)
	if err != nil {
		t.Fatal(err)
	}
	conditions.Replay = trace.Replay{File: "gone.csv", Columns: columns, Pace: 0.5, Scale: 2, Trace: tr}
	log := record(t, conditions, 3, 30)
	if got, _, err := Replay(t.Context(), bytes.NewReader(log)); err != nil || got != 30 {
		t.Fatalf("%d rounds: %v", got, err)
	}
	r, err := NewReader(bytes.NewReader(log))
	if err != nil || r.Header.Trace != times {
		t.Fatal(err, r.Header.Trace)
	}
	for _, c := range []struct{ from, to string }{{"c,1,8", "c,1,9"}, {`a,5,17\n`, ""}, {`"scale":2`, `"scale":1`}} {
		if !bytes.Contains(log, []byte(c.from)) {
			t.Fatalf("no %s", c.from)
		}
		if _, _, err := Replay(t.Context(), bytes.NewReader(sign(bytes.Replace(log, []byte(c.from), []byte(c.to), 1)))); !errors.Is(err, errDiffers) {
			t.Errorf("%s: %v", c.from, err)
		}
	}
	if _, _, err := Replay(t.Context(), bytes.NewReader(sign(bytes.Replace(log, []byte(`a,1,10\n`), []byte(`a,1,0\n`), 1)))); !errors.Is(err, errLog) || !strings.Contains(err.Error(), "trace:2: ") {
		t.Error(err)
	}
}

// A log keeps equal micro-steps that the cluster's file does not have.
func TestEqualSteps(t *testing.T) {
	_, c, err := clusterfile.Read(strings.NewReader(text), "test", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c.SetEqualSteps(2)
	for _, steps := range []int{2, -1} {
		h := NewHeader(text, c)
		var b bytes.Buffer
		if h.EqualSteps == 2 {
			h.EqualSteps = steps
		}
		if _, err := newWriter(&b, h); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&b)
		if steps == 2 && (err != nil || r.Cluster.EqualSteps() != 2) || steps < 0 && !errors.Is(err, errLog) {
			t.Errorf("%d: %v", steps, err)
		}
	}
}

// What was written is read.
func TestRoundTrip(t *testing.T) {
	log := record(t, harsh(t), 1, 3)
	r, err := NewReader(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Cluster != text || r.Header.Seed != 1 || len(r.Cluster.Nodes) != 5 {
		t.Fatalf("%+v", r.Header)
	}
	var again bytes.Buffer
	w, err := newWriter(&again, r.Header)
	if err != nil {
		t.Fatal(err)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Round(cluster.Plan{Sizes: e.Sizes, Collect: e.Collect}, e.Plan().Perf, &e.Report, e.Note); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(log), again.String()); d != "" {
		t.Fatal(d)
	}
}

// A run that is killed leaves the rounds that were over.
func TestKilled(t *testing.T) {
	log := record(t, harsh(t), 1, 5)
	whole := bytes.Count(log, []byte("\n"))
	for cut := 0; cut < len(log); cut += 97 {
		rounds, torn, err := Replay(t.Context(), bytes.NewReader(log[:cut]))
		lines := bytes.Count(log[:cut], []byte("\n"))
		switch {
		case lines == 0 && !errors.Is(err, errLog):
			t.Fatalf("cut at %d: %v", cut, err)
		case lines > 0 && torn != (log[cut-1] != '\n'):
			t.Fatalf("cut at %d: the last line is cut: %v", cut, torn)
		case lines > 0 && (err != nil || rounds != lines-1 || lines > whole):
			t.Fatalf("cut at %d: %d rounds in %d lines: %v", cut, rounds, lines, err)
		}
	}
}

// sign gives every line of a changed log its checksum anew.
func sign(log []byte) []byte {
	var out bytes.Buffer
	sum := uint64(0)
	for line := range bytes.Lines(log) {
		body := line[:max(len(line)-sumLength-1, 0)]
		sum = checksum(sum, body)
		out.Write(body)
		fmt.Fprintf(&out, sumFormat+"\n", sum)
	}
	return out.Bytes()
}

func TestBad(t *testing.T) {
	log := record(t, harsh(t), 1, 3)
	swap := func(old, with string) []byte {
		changed := bytes.Replace(log, []byte(old), []byte(with), 1)
		if bytes.Equal(changed, log) {
			t.Fatalf("%s is not in the log", old)
		}
		return changed
	}
	lines := bytes.SplitAfter(log, []byte("\n"))
	for name, c := range map[string]struct {
		log  []byte
		want string
		is   error
	}{
		"empty":         {nil, "no whole line", errLog},
		"other file":    {[]byte("device,workload\n"), "line 1: no run log", errLog},
		"other version": {swap(`"version":2`, `"version":1`), "line 1: version 1; this program reads version 2", errLog},
		"changed":       {swap(`"round":1`, `"round":2`), "line 3: the checksum", errLog},
		"lost line":     {bytes.Join([][]byte{lines[0], lines[2], lines[3]}, nil), "line 2: the checksum", errLog},
		"unknown field": {sign(swap(`"seed":1`, `"sead":1`)), "line 1: json: unknown field", errLog},
		"conditions":    {sign(swap(`"bias":0.065`, `"bias":-1`)), "line 1: conditions: bias is -1", errLog},
		"cluster":       {sign(swap(`global_batch: 40`, `global_batch: 0`)), "line 1: cluster:2: cluster: invalid file: global_batch", errLog},
		"profiles":      {sign(swap(`\nt4,llama-3b-512-fp16,1,`, `\nt4,llama-3b-512-fp16,0,`)), "line 1: profiles:", errLog},
		"order":         {sign(bytes.Join([][]byte{lines[0], lines[2]}, nil)), "line 2: report.round: is 1, round 0 was expected", errLog},
		"node missing":  {sign(swap(`"overhead":[0,`, `"overhead":[`)), "line 2: overhead: 4 entries for 5 nodes", errLog},
		"size":          {sign(swap(`"sizes":[`, `"sizes":[-`)), "line 2: sizes[0]: is -", errLog},
		"parameters":    {sign(swap(`"per_sample":[`, `"per_sample":[-`)), "line 2: node 0: performance parameters", errLog},
		"status":        {sign(swap(`"status":1`, `"status":9`)), "line 2: report.nodes[0].status: is 9", errLog},
		"weights":       {sign(swap(`"weights":{"speed":0.5`, `"weights":{"speed":-1`)), "line 3: weights: speed is -1", errLog},
		"probe":         {sign(swap(`"report":{"round":0`, `"probe":[0,5],"report":{"round":0`)), "line 2: probe[1]: is 5; it must lie in 0..4", errLog},
		"left out":      {sign(swap(`"report":{"round":0`, `"left_out":[{"node":1,"why":"silent"}],"report":{"round":0`)), "line 2: left_out[0].node: is 1; it must be a node with a size of 0", errLog},
		"other run":     {sign(swap(`"seed":1`, `"seed":2`)), "differs from the log in round 0", errDiffers},
	} {
		_, _, err := Replay(t.Context(), bytes.NewReader(c.log))
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Lines are limited before they are read.
func TestLongLine(t *testing.T) {
	in := io.LimitReader(endless{}, 2*maxLineBytes)
	if _, err := NewReader(in); !errors.Is(err, errLog) || !strings.Contains(err.Error(), "longer than") {
		t.Fatal(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	w, err := Create(path, Header{Format: formatName, Version: formatVersion})
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path) // a line is in the file before the next begins
	if err != nil || bytes.Count(before, []byte("\n")) != 1 {
		t.Fatalf("%v: %s", err, before)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(path, "x"), Header{}); err == nil {
		t.Fatal("a file in a file")
	}
}

func FuzzReader(f *testing.F) {
	log := record(f, cluster.Conditions{}, 1, 2)
	f.Add(log)
	f.Add(liveLog(f, func(*Start, *cluster.Plan) {}))
	f.Add(log[:len(log)/2])
	f.Add([]byte(`{"format":"evenkeel-runlog","version":2}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		// With the checksums right the fields are reached too.
		for _, log := range [][]byte{data, sign(data)} {
			r, err := NewReader(bytes.NewReader(log))
			for err == nil {
				_, err = r.Next()
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, errLog) {
				t.Fatal(err)
			}
		}
	})
}
