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
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
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

// summaryOf reads the --json document.
func summaryOf(t *testing.T, out []byte) planRunSummary {
	t.Helper()
	var s planRunSummary
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// One process, three that were started for the run, and three that were started by hand lose the same bits.
func TestPlanRunProcesses(t *testing.T) {
	one, three := plansOf(t)
	run := func(args ...string) planRunSummary {
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

	keys := filepath.Join(t.TempDir(), "keys")
	if out, err := exec.Command("evenkeel", "plan", "keys", "--stages", "3", "--out", keys).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := exec.Command("evenkeel", "plan", "run", three, "--json", "--steps", "20", "--seed", "3", "--keys", keys, "--stage", "0")
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
	// Another plan is sent away, and the run goes on.
	args := []string{"--keys", keys, "--connect", address}
	refused, err := exec.Command("evenkeel", append([]string{"plan", "run", three, "--size", "9", "--stage", "1"}, args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "another model") || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("%v: %s", err, refused)
	}
	var clients []*exec.Cmd
	for _, k := range []string{"1", "2"} {
		c := exec.Command("evenkeel", append([]string{"plan", "run", three, "--stage", k}, args...)...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range append(clients, server) {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if got := summaryOf(t, out.Bytes()); !slices.Equal(got.Losses, want.Losses) {
		t.Errorf("%v\n%v", got.Losses, want.Losses)
	}
}

// Ctrl-C ends a run in good order, with what was measured and nothing left behind; a killed process is named.
func TestPlanRunEnds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds processes in /proc")
	}
	_, three := plansOf(t)
	for _, who := range []string{"interrupted", "killed"} {
		t.Run(who, func(t *testing.T) {
			temporary := t.TempDir()
			cmd := exec.Command("evenkeel", "plan", "run", three, "--json", "--steps", "10000000")
			cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var all []int
			for deadline := time.Now().Add(10 * time.Second); len(all) < 2 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
				all = childrenOf(cmd.Process.Pid)
			}
			time.Sleep(1500 * time.Millisecond) // it measures, then trains
			begun := time.Now()
			if who == "killed" {
				_ = syscall.Kill(all[1], syscall.SIGKILL)
			} else {
				for _, pid := range append(all, cmd.Process.Pid) { // as a terminal does
					_ = syscall.Kill(pid, syscall.SIGINT)
				}
			}
			err := cmd.Wait()
			if took := time.Since(begun); err == nil || cmd.ProcessState.ExitCode() != exitFailed || took > 5*time.Second {
				t.Errorf("%v after %v: %s", err, took, errs.String())
			}
			for _, pid := range all {
				if syscall.Kill(pid, 0) == nil {
					t.Errorf("process %d is still there", pid)
				}
			}
			if left, _ := os.ReadDir(temporary); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if who == "killed" {
				if !strings.Contains(errs.String(), "lost stage 2 (") || !strings.Contains(errs.String(), "signal: killed") {
					t.Error(errs.String())
				}
				return
			}
			if s := summaryOf(t, out.Bytes()); len(s.Losses) < 2 || len(s.Stages) != 3 || !strings.Contains(errs.String(), "interrupted after") {
				t.Errorf("%d losses: %s", len(s.Losses), errs.String())
			}
		})
	}
}

// childrenOf are the processes that a process started.
func childrenOf(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range tasks {
		text, _ := os.ReadFile(name)
		for _, f := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(f, &child); err == nil {
				all = append(all, child)
			}
		}
	}
	slices.Sort(all)
	return all
}
