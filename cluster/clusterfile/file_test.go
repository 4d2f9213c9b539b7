package clusterfile

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

var update = flag.Bool("update", false, "write the golden files anew")

const badFiles = "testdata/bad.txtar"

// TestBadFiles holds the exact answer to every kind of mistake.
func TestBadFiles(t *testing.T) {
	archive, err := txtar.ParseFile(badFiles)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(archive.Files); i += 2 {
		in, want := archive.Files[i], &archive.Files[i+1]
		t.Run(strings.TrimSuffix(in.Name, ".yaml"), func(t *testing.T) {
			f, c, err := Read(bytes.NewReader(in.Data), "c.yaml", profile.Embedded())
			if err == nil || f != nil || c != nil {
				t.Fatalf("accepted: %v, %+v", err, f)
			}
			if !errors.Is(err, ErrFile) {
				t.Error("does not wrap ErrFile")
			}
			got := err.Error() + "\n"
			if *update {
				want.Data = []byte(got)
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if *update {
		if err := os.WriteFile(badFiles, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFileLimits(t *testing.T) {
	_, _, err := Read(strings.NewReader(strings.Repeat("#", MaxBytes+1)), "c.yaml", profile.Embedded())
	if want := "c.yaml: cluster: invalid file: larger than 524288 bytes"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, _, err := Load("testdata/none.yaml", profile.Embedded()); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrFile) {
		t.Error(err)
	}
	// A hostile file is refused at once: goccy's parser is quadratic in the depth.
	start := time.Now()
	for _, s := range []string{"[", "{a: ", "- ", "? ", "[\n"} {
		if _, _, err := Read(strings.NewReader("nodes: "+strings.Repeat(s, MaxBytes/10)), "c.yaml", profile.Embedded()); !errors.Is(err, ErrFile) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
}

func mustLoad(t testing.TB, path string) (*File, *cluster.Cluster) {
	t.Helper()
	f, c, err := Load(path, profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

func TestFileFull(t *testing.T) {
	f, c := mustLoad(t, "testdata/full.yaml")
	var names []string
	for i := range c.Nodes {
		names = append(names, c.Nodes[i].Name)
	}
	if want := []string{"big", "a10g-0", "a10g-1", "old-0", "old-1", "old-2", "a6000-0"}; !slices.Equal(names, want) {
		t.Errorf("names %v", names)
	}
	if want := (cluster.Collect{Quorum: cluster.Quorum{Share: 0.8}, GraceShare: 0.1, MaxStaleness: 30 * time.Second, Timeout: 5 * time.Minute}); c.Collect != want {
		t.Errorf("%+v", c.Collect)
	}
	old := &c.Nodes[3]
	if old.Profile != nil || old.Hidden.Profile == nil || old.Hidden.Slowdown != 1.25 || old.Network != 7./3+0.002 || old.TFLOPS != 65 {
		t.Errorf("%+v", old)
	}
	if c.Revealed().Nodes[3].Profile != old.Hidden.Profile || c.Nodes[3].Profile != nil {
		t.Error("Revealed")
	}
	// 20 GiB less a seventh of 16 bytes per parameter.
	if n := &c.Nodes[1]; n.Limit != n.Profile.MemoryLimit(20<<30-16*3536246400/7) || n.Network != 2.24 || n.Power != (cluster.Power{Idle: 16.5, Busy: 150}) {
		t.Errorf("%+v", n)
	}
	if c.Nodes[6].Network != 2.24 {
		t.Error("the alias of a link")
	}
	k := f.Conditions.Conditions
	if base, _ := cluster.Preset("steady"); k.Bias != 0 || k.Drift != (cluster.Drift{SD: 0.046, Rounds: 45}) || k.Noise != base.Noise || len(k.Episodes) != 1 || k.Scale != base.Scale {
		t.Errorf("%+v", k)
	}
	if w := f.Objectives.Weights(); w != [4]float64{0.5, 0.25, 0.125, 0.125} {
		t.Error(w)
	}
}

func TestFileMinimal(t *testing.T) {
	f, c := mustLoad(t, "testdata/minimal.yaml")
	if c.Nodes[0].Name != "k80-0" || c.Collect != (cluster.Collect{}) || c.Nodes[0].Network != 0 {
		t.Errorf("%+v", c)
	}
	if f.Objectives.Weights() != [4]float64{1} {
		t.Error("speed alone is the default")
	}
	if k := f.Conditions.Conditions; k.Episodes != nil || k.Bias != 0 || k.Validate() != nil {
		t.Errorf("%+v", k)
	}
}

// Power is the file's, else the device's; zeros in the file make it unknown.
func TestFilePower(t *testing.T) {
	_, c, err := Read(strings.NewReader(`
workload: resnet-50
global_batch: 256
nodes:
  - {device: v100}
  - {device: v100, power: {idle: 40, busy: 290}}
  - {device: v100, power: {idle: 0, busy: 0}}
  - {device: k80}
`), "c", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	d, _ := profile.Embedded().Device("v100")
	for i, want := range []cluster.Power{{Idle: d.IdleWatts, Busy: d.BusyWatts}, {Idle: 40, Busy: 290}, {}, {}} {
		if got := c.Nodes[i].Power; got != want || want.Joules(2, 5) != 2*want.Busy+3*want.Idle {
			t.Errorf("node %d: %+v, want %+v", i, got, want)
		}
	}
}

// What the policy may choose, whichever way it is written.
func TestFileChoices(t *testing.T) {
	const head = "workload: resnet-50\nnodes: [{device: k80, count: 2}]\n"
	both := cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	for text, want := range map[string]cluster.Choices{
		"global_batch: 256\ncollect: {quorum: all, grace: 10%}":                 {},
		"global_batch: 256\ncollect: {quorum: auto}":                            both,
		"global_batch: 256\ncollect: {quorum: auto, grace: auto}":               both,
		"global_batch: 256\ncollect: {quorum: [70%, 0.9, all]}":                 {Quorum: []float64{0.7, 0.9, 1}, Grace: cluster.Graces},
		"global_batch: 256\ncollect: {quorum: '70%,90%, all', grace: [0, 40%]}": {Quorum: []float64{0.7, 0.9, 1}, Grace: []float64{0, 0.4}},
		"global_batch: 256\ncollect: {quorum: auto, grace: 0}":                  {Quorum: cluster.Quorums, Grace: []float64{0}},
		"global_batch: 256\ncollect: {quorum: 1.0, grace: auto}":                {Quorum: []float64{1}, Grace: cluster.Graces},
		"global_batch: 256\ncollect: {quorum: 80%, grace: [3%, 6%]}":            {Quorum: []float64{0.8}, Grace: []float64{0.03, 0.06}},
		"global_batch: {start: 256, least: 2, most: 512}":                       {LeastBatch: 2, MostBatch: 512},
	} {
		_, c, err := Read(strings.NewReader(head+text), "c", profile.Embedded())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, c.Choices); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
		if free := want.Quorum != nil; free && c.Collect != (cluster.Collect{}) || c.GlobalBatch != 256 {
			t.Errorf("%s: begins with %+v and %d samples", text, c.Collect, c.GlobalBatch)
		}
	}
}

// The collect section applies to a cluster that is there, as a whole or not at all.
func TestCollectApply(t *testing.T) {
	_, c := mustLoad(t, "testdata/full.yaml")
	free, err := ParseQuorum("70%,all")
	if err != nil {
		t.Fatal(err)
	}
	late, err := ParseGrace("2s")
	if err != nil {
		t.Fatal(err)
	}
	before := *c
	if err := (&Collect{Quorum: free, Grace: late}).Apply(c); err == nil || !strings.Contains(err.Error(), "collect.grace must be auto") || !cmp.Equal(before.Collect, c.Collect) {
		t.Errorf("%v, %+v", err, c.Collect)
	}
	if err := (&Collect{Quorum: free, Timeout: Timeout{Duration: Duration(time.Minute)}}).Apply(c); err != nil || c.Collect != (cluster.Collect{Timeout: time.Minute}) || len(c.Choices.Rules()) != 7 {
		t.Errorf("%v, %+v, %v", err, c.Collect, c.Choices)
	}
}

// The format document's own example must work.
func TestFileDocumented(t *testing.T) {
	source, err := os.ReadFile("../../docs/reference/formats/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	if _, _, err := Read(strings.NewReader(example), "cluster.md", profile.Embedded()); err != nil {
		t.Fatal(err)
	}
}

func TestFilePresets(t *testing.T) {
	for _, name := range cluster.Presets() {
		f, _, err := Read(strings.NewReader("workload: resnet-50\nglobal_batch: 256\nnodes: [{device: k80, count: 2}]\nconditions: "+name), "c", profile.Embedded())
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := cluster.Preset(name); f.Conditions.Preset != name || !cmp.Equal(f.Conditions.Conditions, want) {
			t.Errorf("%s: %+v", name, f.Conditions)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, path := range []string{"testdata/full.yaml", "testdata/minimal.yaml", "testdata/choices.yaml"} {
		source, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	archive, err := txtar.ParseFile(badFiles)
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		if strings.HasSuffix(file.Name, ".yaml") {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		file, c, err := Read(bytes.NewReader(source), "c.yaml", profile.Embedded())
		if err != nil {
			if !errors.Is(err, ErrFile) || file != nil || c != nil {
				t.Fatalf("%v, %v, %v", file, c, err)
			}
			return
		}
		sizes := make([]int, len(c.Nodes))
		finish, err := cluster.Allocate(c, nil, c.Nominal(), sizes)
		if err != nil || !(finish > 0) || math.IsInf(finish, 0) {
			t.Fatalf("%v, %v", finish, err)
		}
		sum := 0
		for i, b := range sizes {
			if sum += b; !c.Nodes[i].Takes(b) {
				t.Fatalf("%d for %+v", b, c.Nodes[i])
			}
		}
		if sum != c.GlobalBatch {
			t.Fatalf("%d of %d", sum, c.GlobalBatch)
		}
	})
}
