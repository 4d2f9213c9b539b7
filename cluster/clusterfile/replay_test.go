package clusterfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/cluster/profile"
)

func TestReplayedFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const text = "workload: resnet-50\nglobal_batch: 256\nnodes: [{device: k80, count: 2}]\nconditions:\n  preset: drift\n  replay: {file: times.csv, worker: rank, time: ms}\n"
	write("c.yaml", text)
	path := filepath.Join(dir, "c.yaml")
	quote := "\n  6 |   replay: {file: times.csv, worker: rank, time: ms}"
	prefix := path + ":6: cluster: invalid file: conditions.replay.file: "
	times := filepath.Join(dir, "times.csv")
	for _, c := range []struct{ csv, want string }{
		{"", prefix + "trace: stat " + times + ": no such file or directory" + quote},
		{"rank,round,seconds\n", prefix + times + ":1: trace: invalid file: no column \"ms\"; there are rank, round, seconds; name yours by replay.time" + quote},
		{"rank,round,ms\na,1,2\na,2,-2\n", prefix + times + ":3: trace: invalid file: ms: is \"-2\"; it must be a number above 0 and up to 1e+12; leave out rounds without a time" + quote},
	} {
		if c.csv != "" {
			write("times.csv", c.csv)
		}
		if _, _, err := Load(path, profile.Embedded()); !errors.Is(err, ErrFile) || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	write("times.csv", "rank,round,ms\na,1,2\na,2,6\n")
	f, c, err := Load(path, profile.Embedded())
	if err != nil || len(c.Nodes) != 2 {
		t.Fatal(err)
	}
	r, drift := f.Conditions.Conditions.Replay, f.Conditions.Conditions.Drift
	if drift.SD == 0 || r.Trace == nil || r.Trace.Jobs[0].Workers[0].At(2) != 1.5 {
		t.Errorf("%+v, %+v", r, drift)
	}
	// Without a folder no other file is opened; without a trace there is nothing to open.
	if f, _, err := Read(strings.NewReader(text), "c.yaml", profile.Embedded()); err != nil || f.Conditions.Conditions.Replay.Trace != nil {
		t.Error(err)
	}
	if _, _, err := ReadIn(strings.NewReader(text[:strings.Index(text, "conditions")]), "c.yaml", "nowhere", profile.Embedded()); err != nil {
		t.Error(err)
	}
}
