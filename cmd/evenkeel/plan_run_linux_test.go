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

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
)

// Ctrl-C ends a run in good order, with what was measured and nothing left behind; a killed process is named.
func TestPlanRunEnds(t *testing.T) {
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
				for _, pid := range all {
					if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(line), "--stage\x002\x00") {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			} else {
				for _, pid := range append(all, cmd.Process.Pid) { // as a terminal does
					_ = syscall.Kill(pid, syscall.SIGINT)
				}
			}
			err := cmd.Wait()
			if took := time.Since(begun); err == nil || cmd.ProcessState.ExitCode() != cli.ExitFailed || took > 5*time.Second {
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
