package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/bucket"
	bucketplain "evenkeel/bucket/plain"
	"evenkeel/bucket/stepcost"
	"evenkeel/internal/pytorch"
)

// PyTorch reads a schedule with the sampler in python/evenkeel.
func TestBucketSampler(t *testing.T) {
	python := pytorch.Python(t)
	table, err := stepcost.ReadTable(strings.NewReader(stepcost.TableHeader+"\n10,1,0.11,\n10,8,0.18,\n40,1,0.14,\n40,4,0.26,\n"), "table")
	if err != nil {
		t.Fatal(err)
	}
	cost, err := stepcost.New(table, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := make(bucket.Lengths, 300)
	for i := range l {
		l[i] = uint32(1 + i*i%40)
	}
	p, err := bucketplain.Make(l, cost, bucket.Config{Speeds: []float64{1, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Schedule(l, 1, 0)
	h, err := p.Header(s, 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := bucket.WriteSchedule(f, h, s); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "../../python/tests/check_bucket.py", path, fmt.Sprint(len(l)))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "ok\n") {
		t.Fatalf("%v\n%s", err, out)
	}
}
