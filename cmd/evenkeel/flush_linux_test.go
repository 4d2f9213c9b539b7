package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/slow"
)

// traced runs a service with a journal under strace, until the test ends.
func traced(t *testing.T, dir string, stderr io.Writer, options ...string) *killed {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	k := &killed{t: t, dir: dir, addr: "127.0.0.1:" + freePorts(t, 1)[0]}
	k.cmd = exec.Command(strace, slices.Concat([]string{"-f"}, options, []string{"evenkeel", "serve", "--state", k.dir, "--listen", k.addr})...)
	k.cmd.SysProcAttr, k.cmd.Stderr = &syscall.SysProcAttr{Setpgid: true}, stderr
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.end(syscall.SIGKILL) })
	waitUp(k.addr)
	return k
}

// end sends a signal to the service and to who traces it, and waits for their end.
func (k *killed) end(s syscall.Signal) {
	_ = syscall.Kill(-k.cmd.Process.Pid, s)
	_ = k.cmd.Wait()
}

// Every answer "accepted" comes after the journal was flushed to the disk for it: the system calls say so, which a process that is killed does not show.
func TestServeFlushes(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	k := traced(t, t.TempDir(), nil, "-ttt", "-T", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o", calls)
	var now sizesAnswer
	start := map[string]any{"id": "0123456789", "global_batch": 60, "ranks": []map[string]any{{"name": "a"}, {"name": "b"}}}
	k.post("POST", "/v1/jobs/job/generations", start, &now)
	const rounds = 30
	var sent, answered [rounds]time.Time
	for round := range rounds {
		ranks := []any{}
		for _, n := range now.Sizes.Nodes {
			ranks = append(ranks, map[string]any{"seconds": 0.1 + float64(round%3)*0.01, "samples": n.Share, "micro_steps": n.MicroSteps})
		}
		report := map[string]any{"generation": 1, "round": round, "plan": now.Sizes.Plan, "wait_seconds": 0.2, "ranks": ranks}
		time.Sleep(5 * time.Millisecond)
		now, sent[round] = sizesAnswer{}, time.Now()
		k.post("POST", "/v1/jobs/job/reports", report, &now)
		if answered[round] = time.Now(); now.Verdict != "accepted" {
			t.Fatalf("round %d: %s", round, now.Verdict)
		}
	}
	k.end(syscall.SIGTERM)
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	flushed := flushes(t, string(text))
	for round := range rounds {
		found := false
		for _, at := range flushed {
			found = found || at.After(sent[round]) && at.Before(answered[round])
		}
		if !found {
			t.Errorf("round %d was called accepted without a flush between its report and the answer", round)
		}
	}
	t.Logf("%d flushes for %d reports", len(flushed), rounds)
}

// flushed is a flush that ended well: when strace saw it begin and how long it took, or when it saw it end.
var flushed = regexp.MustCompile(`^\d+ +(\d+\.\d+) (?:<\.\.\. )?(?:fsync|fdatasync)(?:\(\d+|\s+resumed>)\) += 0(?: <(\d+\.\d+)>)?`)

// flushes are the times at which flushes had ended.
func flushes(t *testing.T, text string) []time.Time {
	t.Helper()
	var all []time.Time
	for line := range strings.Lines(text) {
		m := flushed.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := strconv.ParseFloat(m[2], 64); err == nil && !strings.Contains(line, "resumed") {
			at += took
		}
		all = append(all, time.UnixMicro(int64(at*1e6)))
	}
	return all
}

// A disk that stalls for longer than a client waits costs that time: no job is thought lost for it, and none read anew.
func TestServeStalledDisk(t *testing.T) {
	slow.Skip(t)
	var log bytes.Buffer
	k := traced(t, t.TempDir(), &log, "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=2500000:when=10", "-o", os.DevNull)
	var now sizesAnswer
	k.post("POST", "/v1/jobs/job/generations", map[string]any{"id": "0123456789", "global_batch": 60, "ranks": []map[string]any{{"name": "a"}, {"name": "b"}}}, &now)
	longest := time.Duration(0)
	for round := 0; round < 400 && longest < 2*time.Second; round++ { // the tenth flush of each thread stalls
		ranks := []any{}
		for _, n := range now.Sizes.Nodes {
			ranks = append(ranks, map[string]any{"seconds": 0.1, "samples": n.Share, "micro_steps": n.MicroSteps})
		}
		begun := time.Now()
		report := map[string]any{"generation": 1, "round": round, "plan": now.Sizes.Plan, "wait_seconds": 0.2, "ranks": ranks}
		now = sizesAnswer{}
		if k.post("POST", "/v1/jobs/job/reports", report, &now); now.Verdict != "accepted" {
			t.Fatalf("round %d: %s", round, now.Verdict)
		}
		longest = max(longest, time.Since(begun))
	}
	k.end(syscall.SIGKILL)
	if longest < 2*time.Second {
		t.Errorf("the longest answer took %v: the disk did not stall", longest)
	}
	if strings.Contains(log.String(), "read from the journal") || strings.Contains(log.String(), "does not take") {
		t.Error(log.String())
	}
}
