package profile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEmbedded(t *testing.T) {
	c := Embedded()
	if n, want := len(c.Profiles()), len(rows(t, "series.csv")); n != want {
		t.Errorf("%d profiles, series.csv has %d", n, want)
	}
	measured := map[string]bool{}
	for _, p := range c.Profiles() {
		measured[p.Device] = true
	}
	page(t, "The catalogue has %d profiles of %d devices and %d workloads, and the data sheets of %d more devices;", len(c.Profiles()), len(measured), len(c.Workloads()), len(c.Devices())-len(measured))
	var r2 []float64
	for _, p := range c.Profiles() {
		sane(t, p)
		s, ok := c.Source(p.Source)
		if !ok || s.Repository == "" || len(s.Commit) != 40 || s.Licence == "" || s.Files == "" || p.Note == "" {
			t.Errorf("%s on %s: source %+v, note %q", p.Workload, p.Device, s, p.Note)
		}
		if !strings.Contains(sourcesText(), s.Commit) {
			t.Errorf("SOURCES.md does not name %s", s.Commit)
		}
		if w, _ := c.Workload(p.Workload); w.Unit == "" || w.DType == "" {
			t.Errorf("%+v", w)
		}
		r2 = append(r2, p.Fit().R2)
	}
	slices.Sort(r2)
	if low, median := r2[0], r2[len(r2)/2]; low < 0.92 || median < 0.999 {
		t.Errorf("R2 %v at least, %v in the median", low, median)
	}
	for _, d := range c.Devices() {
		if d.MemoryBytes < 8<<30 || d.TFLOPS32 <= 0 || d.TFLOPS16 < d.TFLOPS32 || d.Bandwidth < 200 || !strings.HasPrefix(d.DataSheet, "https://") {
			t.Errorf("%+v", d)
		}
	}
}

// Power is known where Zeus measured it, with its source named, and nowhere else.
func TestPower(t *testing.T) {
	c := Embedded()
	if s, ok := c.Source("zeus"); !ok || len(s.Commit) != 40 || !strings.Contains(sourcesText(), s.Commit) {
		t.Errorf("source %+v", s)
	}
	measured := rows(t, "power.csv")
	for _, d := range c.Devices() {
		known := slices.ContainsFunc(measured, func(r []string) bool { return r[0] == d.Name })
		if known != (d.BusyWatts > 0) || known != (d.IdleWatts > 0) || d.IdleWatts > d.BusyWatts || d.BusyWatts > 250 { // the limit they were measured under
			t.Errorf("%+v", d)
		}
	}
}

// Whole devices and whole models are held out: every name of a held-out family, no other.
func TestSplit(t *testing.T) {
	c := Embedded()
	for _, d := range c.Devices() {
		want := Train
		if slices.Contains([]string{"a6000", "l40s", "p40"}, d.Name) {
			want = HeldOut
		}
		if d.Split != want {
			t.Errorf("device %s is %s", d.Name, d.Split)
		}
	}
	families := map[string]Split{}
	for _, w := range c.Workloads() {
		want := Train
		for _, family := range []string{"gpt-", "bert-large", "vit-", "llama-7b", "resnet-50", "opt-"} {
			if strings.HasPrefix(w.Name, family) {
				want = HeldOut
			}
		}
		if w.Split != want {
			t.Errorf("workload %s is %s", w.Name, w.Split)
		}
		family := strings.Join(strings.Split(w.Name, "-")[:min(2, 1+strings.Count(w.Name, "-"))], "-")
		if s, seen := families[family]; seen && s != w.Split {
			t.Errorf("%s is in both splits", family)
		}
		families[family] = w.Split
	}
	both := map[Split]int{}
	for _, p := range c.Profiles() {
		d, _ := c.Device(p.Device)
		w, _ := c.Workload(p.Workload)
		if d.Split == w.Split {
			both[d.Split]++
		}
	}
	page(t, "both device and workload in `train` (%d); the held-out test uses those with both held out (%d).", both[Train], both[HeldOut])
	page(t, "The other %d have either a new model or a new device", len(c.Profiles())-both[Train]-both[HeldOut])
}

// rows are those of a file of the catalogue, without the header.
func rows(t *testing.T, name string) [][]string {
	t.Helper()
	b, err := files.ReadFile("catalogue/" + name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all[1:]
}

// page fails unless the page of the format says so.
func page(t *testing.T, format string, counts ...any) {
	t.Helper()
	const name = "../../docs/reference/formats/profile.md"
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprintf(format, counts...); !strings.Contains(string(b), text) {
		t.Errorf("%s does not say %q", name, text)
	}
}

// torch's names lead to the catalogue's devices; a user's device by such a name has the figures of its data sheet.
func TestLike(t *testing.T) {
	c := Embedded()
	for name, want := range map[string]string{
		"NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA-GeForce-RTX-4090": "rtx-4090", "RTX4090": "rtx-4090", "NVIDIA H100 80GB HBM3": "h100-80g", "NVIDIA A10": "a10",
		"AMD Instinct MI300X": "mi300x", "Tesla V100-SXM2-16GB": "v100", "v100-16g": "v100-16g", "NVIDIA GH200 480GB": "gh200-96g", "NVIDIA A100-SXM4-80GB": "a100-80g",
		"NVIDIA GeForce RTX 4090 Laptop GPU": "", "NVIDIA GeForce RTX 4060 Ti": "", "NVIDIA A100-SXM4-40GB MIG 1g.5gb": "", "NVIDIA": "", "": "",
	} {
		got := ""
		if like := c.Like(name); len(like) > 0 {
			got = like[0].Name
		}
		if got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	if err := c.AddReader("mine.csv", strings.NewReader(header+"\nNVIDIA-H100-80GB-HBM3,mine,1,2,\n")); err != nil {
		t.Fatal(err)
	}
	d, _ := c.Device("NVIDIA-H100-80GB-HBM3")
	if h, _ := c.Device("h100-80g"); d.MemoryBytes != h.MemoryBytes || d.TFLOPS16 != 989 || d.Split != "" {
		t.Errorf("%+v", d)
	}
	if like := c.Like("NVIDIA H100 80GB HBM3"); len(like) != 2 {
		t.Errorf("%+v", like)
	}
}

func TestCopyOnWrite(t *testing.T) {
	c := Embedded()
	if err := c.AddReader("mine.csv", strings.NewReader(header+"\nt4,lm,1,2,\nh300,lm,1,1,\nt4,llama-3b-512-fp16,1,9,\n")); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Lookup("t4", "llama-3b-512-fp16"); err != nil || p.Seconds(1) != 9 || p.Source != "mine.csv" {
		t.Errorf("not replaced: %+v %v", p, err)
	}
	if d, ok := c.Device("t4"); !ok || d.MemoryBytes == 0 {
		t.Error("a known device lost its memory")
	}
	other := Embedded()
	if _, ok := other.Device("h300"); ok || len(other.Profiles()) != len(rows(t, "series.csv")) {
		t.Error("an addition leaked into the embedded catalogue")
	}
	if p, _ := other.Lookup("t4", "llama-3b-512-fp16"); p.Seconds(1) == 9 {
		t.Error("a replacement leaked into the embedded catalogue")
	}
}

func TestLookupErrors(t *testing.T) {
	c := Embedded()
	for _, x := range []struct{ device, workload, want string }{
		{"a100", "lm", `unknown device "a100"; did you mean a100-40g, a100-80g? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"A10G", "lm", `unknown device "A10G"; did you mean a10g? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"t4", "lama-3b-512-fp16", `unknown workload "lama-3b-512-fp16"; did you mean llama-3b-512-fp16? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"k80", "bert-base-512-fp32", `workload "bert-base-512-fp32" was not measured on device "k80": k80 has lm, recommendation, resnet-50; bert-base-512-fp32 was measured on a10g, a6000, p40, t4, v100-16g; measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"t4", "llama-9b", `unknown workload "llama-9b"; did you mean llama-3b-512-fp16, llama-3b-512-fp32, llama-7b-512-fp16? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"NVIDIA H100 80GB HBM3", "lm", `unknown device "NVIDIA H100 80GB HBM3"; did you mean h100-80g, h100-pcie-80g? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"NVIDIA GeForce RTX 4090", "lm", `unknown device "NVIDIA GeForce RTX 4090"; did you mean rtx-4090, rtx-4060-ti-16g, rtx-3090? If not, measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"rtx-4090", "lm", `no workload was measured on device "rtx-4090", of which only the data sheet is known; measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
		{"no-such-gpu", "lm", `unknown device "no-such-gpu"; evenkeel profiles devices shows the known ones; measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)`},
	} {
		_, err := c.Lookup(x.device, x.workload)
		var u *UnknownError
		if err == nil || err.Error() != x.want || !errors.As(err, &u) || !errors.Is(err, ErrUnknown) {
			t.Errorf("got  %v\nwant %s", err, x.want)
		}
	}
	if _, err := new(Catalogue).Lookup("x", "y"); err == nil || !strings.HasPrefix(err.Error(), `unknown device "x"; evenkeel profiles devices`) {
		t.Errorf("empty catalogue: %v", err)
	}
}

func TestAdd(t *testing.T) {
	dir := t.TempDir()
	file := func(name, rows string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(header+"\n"+rows), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := file("ok/a.csv", "d,w,1,1,\n")
	file("ok/B.CSV", "e,w,1,1,\n")
	file("ok/notes.txt", "junk")
	file("ok/sub/c.csv", "f,w,1,1,\n")
	var c Catalogue
	if err := c.Add(filepath.Join(dir, "ok")); err != nil || len(c.Profiles()) != 2 {
		t.Fatalf("%v, %d profiles", err, len(c.Profiles()))
	}
	if err := c.Add(a); err != nil {
		t.Fatal(err)
	}
	twice := file("twice/a.csv", "d,w,1,1,\n")
	again := file("twice/b.csv", "d,w,2,1,\n")
	bad := file("bad/a.csv", "d,w,1,0,\n")
	file("bad/b.csv", "new,w,1,1,\n")
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Dir(twice):                again + ": w on d is in " + twice + " too: keep one of them",
		filepath.Dir(bad):                  bad + ":2: seconds: 0 is not above zero: give the measured seconds of forward and backward, or leave the row out",
		filepath.Join(dir, "none"):         filepath.Join(dir, "none") + ": the folder holds no .csv file",
		filepath.Join(dir, "ok/notes.txt"): filepath.Join(dir, "ok/notes.txt") + ": a profile file ends in .csv",
	} {
		if err := c.Add(path); err == nil || err.Error() != want || !errors.Is(err, ErrFormat) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if err := c.Add(filepath.Join(dir, "nowhere.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if len(c.Profiles()) != 2 {
		t.Error("an error left something behind")
	}
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.csv")
	rows := "t4,one,1,1,\n" + "t4,two,2,1,1000\nt4,two,4,2,\n" +
		"t4,dip,1,1,100000000\nt4,dip,2,3,200000000\nt4,dip,3,2,300000000\nt4,dip,4,9,400000000\n"
	if err := os.WriteFile(path, []byte(header+"\n"+rows), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Check(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"one": "one point: the time is taken as proportional to the micro-batch; measure a second size|no peak memory: the micro-batch has no memory limit|time was measured to 1: beyond that it is extrapolated",
		"two": "two points: noise in either tilts the whole curve|micro-batches below 2 are extrapolated|one peak memory: taken as proportional to the micro-batch|time was measured to 4: beyond that it is extrapolated",
		"dip": "R2 0.683 is below 0.95: the points lie far from a line, measure again with more warm-up and repetitions|a point lies 145% off the fitted line|" +
			"2 of 4 points moved: the time falls there while the micro-batch grows|memory allows micro-batches up to 171, time was measured to 4: beyond that both are extrapolated",
	}
	for _, r := range got {
		if w := strings.Join(r.Warnings, "|"); w != want[r.Workload] {
			t.Errorf("%s: %s\nwant %s", r.Workload, w, want[r.Workload])
		}
	}
	if len(got) != 3 || got[2].Smoothed != 2 || !got[2].MemoryKnown || got[2].First != 1 || got[2].Last != 4 {
		t.Errorf("%+v", got)
	}
	b, err := json.Marshal(got)
	if err != nil || !bytes.Contains(b, []byte(`"warnings":["one point`)) || !bytes.Contains(b, []byte(`"memory_known":true`)) {
		t.Errorf("%v %s", err, b)
	}
	if _, err := Check(filepath.Join(t.TempDir(), "none.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// sourcesText is the list of sources with their licences.
func sourcesText() string {
	b, _ := files.ReadFile("catalogue/SOURCES.md") // embedded: cannot fail
	return string(b)
}
