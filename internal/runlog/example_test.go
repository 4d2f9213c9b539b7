package runlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/sim"
	"evenkeel/internal/runlog"
)

// A run of two rounds is written, read and replayed.
func Example() {
	dir, err := os.MkdirTemp("", "runlog")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "run.jsonl")
	const text = "{workload: llama-3b-512-fp16, global_batch: 40, nodes: [{device: a100-40g}, {device: t4}]}"
	_, c, err := clusterfile.Read(strings.NewReader(text), "my.yaml", profile.Embedded())
	if err != nil {
		log.Fatal(err)
	}
	h := runlog.NewHeader(text, c)
	h.Name, h.Seed = "my.yaml", 1
	w, err := runlog.Create(path, h)
	if err != nil {
		log.Fatal(err)
	}
	s, plan := sim.New(c, h.Conditions, h.Seed), cluster.Plan{Sizes: []int{30, 10}, Collect: c.Collect}
	for range 2 {
		report, err := s.Round(context.Background(), plan)
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Round(plan, c.Nominal(), report, runlog.Note{}); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	r, err := runlog.NewReader(file)
	if err != nil {
		log.Fatal(err)
	}
	for {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Header.Name, entry.Sizes)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		log.Fatal(err)
	}
	rounds, cut, err := runlog.Replay(context.Background(), file) // the simulator gives the same reports
	fmt.Println(rounds, cut, err)
	// Output:
	// my.yaml [30 10]
	// my.yaml [30 10]
	// 2 false <nil>
}
