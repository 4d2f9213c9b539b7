package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
)

// Ctrl-C ends a run in good order, with what was measured and nothing left behind.
func TestPlanRunInterrupted(t *testing.T) {
	out, errs := endPlanRun(t, func(server int, clients []int) {
		for _, pid := range append(clients, server) { // as a terminal does
			_ = syscall.Kill(pid, syscall.SIGINT)
		}
	})
	if s := summaryOf(t, out); len(s.Losses) < 1 || len(s.Stages) != 3 || !strings.Contains(errs, "interrupted after") {
		t.Errorf("%d losses: %s", len(s.Losses), errs)
	}
}

// A process that is killed is named.
func TestPlanRunKilled(t *testing.T) {
	_, errs := endPlanRun(t, func(_ int, clients []int) {
		for _, pid := range clients {
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), "--stage\x002\x00") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	if !strings.Contains(errs, "lost stage 2 (") || !strings.Contains(errs, "signal: killed") {
		t.Error(errs)
	}
}

// endPlanRun starts a run of three stages, ends it, and checks that it fails soon and leaves nothing behind.
func endPlanRun(t *testing.T, end func(server int, clients []int)) (out []byte, errs string) {
	t.Helper()
	_, three := plansOf(t)
	temporary := t.TempDir()
	cmd := exec.Command("evenkeel", "plan", "run", three, "--json", "--steps", "10000000")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	var stdout bytes.Buffer
	stderr := watched{sign: "the first of 10000000 iterations is done", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stderr.seen:
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("no iteration within a minute: %s", stderr.all.String())
	}
	clients := childrenOf(cmd.Process.Pid)
	if len(clients) != 2 {
		t.Errorf("%d processes beside the server, want 2", len(clients))
	}
	begun := time.Now()
	end(cmd.Process.Pid, clients)
	err := cmd.Wait()
	if took := time.Since(begun); err == nil || cmd.ProcessState.ExitCode() != cli.ExitFailed || took > 5*time.Second {
		t.Errorf("%v after %v: %s", err, took, stderr.all.String())
	}
	for _, pid := range clients {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return stdout.Bytes(), stderr.all.String()
}

// watched is what a process writes; seen is closed once it has written sign.
type watched struct {
	all  strings.Builder
	sign string
	seen chan struct{}
	was  bool
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.all.Write(b)
	if !w.was && strings.Contains(w.all.String(), w.sign) {
		w.was = true
		close(w.seen)
	}
	return n, err
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
