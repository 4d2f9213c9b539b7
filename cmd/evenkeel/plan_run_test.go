package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// plansOf writes plans of one stage and of three, the same but for that, for an MLP of three dense layers.
func plansOf(t *testing.T) (one, three string) {
	t.Helper()
	write := func(ends ...int) string {
		var stages []string
		from := 0
		for k, to := range ends {
			stages = append(stages, fmt.Sprintf(`{"from": %d, "to": %d, "groups": [{"device": "cpu", "first": %d, "count": 1, "tensor": 1, "micro_batches": [6]}],
				"strategies": [{"from": %d, "to": %d, "sharding": "none", "checkpoint": false}]}`, from, to, k, from, to))
			from = to
		}
		path := filepath.Join(t.TempDir(), "plan.json")
		text := fmt.Sprintf(`{"version": 1, "model": "mlp", "global_batch": 24, "micro_batch": 6, "stages": [%s], "unused": []}`, strings.Join(stages, ","))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write(3), write(1, 2, 3)
}

// planSummary is what these tests read of the --json document of plan run.
type planSummary struct {
	Losses    []float64 `json:"losses"`
	Median    float64   `json:"seconds_per_iteration"`
	Predicted float64   `json:"predicted_seconds"`
	Stages    []any     `json:"stages"`
	Idle      []float64 `json:"idle"`
}

// summaryOf reads the --json document.
func summaryOf(t *testing.T, out []byte) planSummary {
	t.Helper()
	var s planSummary
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// One process, three that were started for the run, and three that were started by hand have the same losses, to the bit.
func TestPlanRunProcesses(t *testing.T) {
	one, three := plansOf(t)
	run := func(args ...string) planSummary {
		t.Helper()
		var errs bytes.Buffer
		cmd := exec.Command("evenkeel", append([]string{"plan", "run", "--json", "--steps", "20", "--seed", "3"}, args...)...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, errs.String())
		}
		return summaryOf(t, out)
	}
	want := run(one)
	got := run(three)
	if len(want.Losses) != 20 || !slices.Equal(got.Losses, want.Losses) {
		t.Errorf("%v\n%v", got.Losses, want.Losses)
	}
	if len(got.Stages) != 3 || len(got.Idle) != 3 || got.Predicted <= 0 || got.Median <= 0 {
		t.Errorf("%+v", got)
	}
	if got := runByHand(t, three); !slices.Equal(got.Losses, want.Losses) {
		t.Errorf("%v\n%v", got.Losses, want.Losses)
	}
}

// runByHand starts each stage of a plan of three as a user does, and one of another model, which the server refuses.
func runByHand(t *testing.T, plan string) planSummary {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	if out, err := exec.Command("evenkeel", "plan", "keys", "--stages", "3", "--out", keys).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := exec.Command("evenkeel", "plan", "run", plan, "--json", "--steps", "20", "--seed", "3", "--keys", keys, "--stage", "0")
	var out bytes.Buffer
	server.Stdout = &out
	errs, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	lines, address := bufio.NewScanner(errs), ""
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "--connect ")
	}
	go func() { _, _ = io.Copy(io.Discard, errs) }()
	args := []string{"--keys", keys, "--connect", address}
	refused, err := exec.Command("evenkeel", append([]string{"plan", "run", plan, "--size", "9", "--stage", "1"}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "another model") || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("%v: %s", err, refused)
	}
	processes := []*exec.Cmd{server}
	for _, k := range []string{"1", "2"} {
		c := exec.Command("evenkeel", append([]string{"plan", "run", plan, "--stage", k}, args...)...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, c)
	}
	for _, c := range processes {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	return summaryOf(t, out.Bytes())
}
