package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/serve"
)

var kills = flag.Int("kills", 8, "how often TestServeKilled kills the service")

// killed is a service with a journal that is killed again and again, and a job that reports to it.
type killed struct {
	t    *testing.T
	dir  string
	addr string
	cmd  *exec.Cmd
}

// start starts the service, which whoever waits for it sees if it fails.
func (k *killed) start(stderr io.Writer) {
	k.cmd = exec.Command("evenkeel", "serve", "--state", k.dir, "--listen", k.addr)
	k.cmd.Stderr = stderr
	if err := k.cmd.Start(); err != nil {
		k.t.Error(err)
	}
}

// post sends a request until there is an answer, and reads it.
func (k *killed) post(method, path string, body any, out any) int {
	k.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		k.t.Fatal(err)
	}
	for since := time.Now(); time.Since(since) < time.Minute; time.Sleep(2 * time.Millisecond) {
		r, err := http.NewRequestWithContext(k.t.Context(), method, "http://"+k.addr+path, bytes.NewReader(text))
		if err != nil {
			k.t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			continue // it was killed, or is not up yet
		}
		got, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			continue
		}
		if answer.StatusCode/100 != 2 {
			k.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, got)
		}
		if err := json.Unmarshal(got, out); err != nil {
			k.t.Fatal(err)
		}
		return answer.StatusCode
	}
	k.t.Fatal("no answer within a minute")
	return 0
}

type sizesAnswer struct {
	Verdict string
	Sizes   struct {
		Plan  int
		Nodes []struct {
			Share      int
			MicroSteps int `json:"micro_steps"`
		}
	}
}

func (a *sizesAnswer) shares() []int {
	var out []int
	for _, n := range a.Sizes.Nodes {
		out = append(out, n.Share)
	}
	return out
}

// report is that of a round with these sizes, by ranks whose speeds change places every 40 rounds.
func (a *sizesAnswer) report(round int, rng *rand.Rand) map[string]any {
	ranks, wait := []any{}, 0.0
	for i, n := range a.Sizes.Nodes {
		took := float64(n.Share) * []float64{0.001, 0.002, 0.004}[(i+round/40)%3] * (1 + 0.1*rng.Float64())
		ranks = append(ranks, map[string]any{"seconds": took, "samples": n.Share, "micro_steps": n.MicroSteps})
		wait = max(wait, took)
	}
	return map[string]any{"generation": 1, "round": round, "plan": a.Sizes.Plan, "wait_seconds": wait, "ranks": ranks}
}

// A service that is killed with SIGKILL at any moment loses no report that it called accepted, and decides as one that lives on.
func TestServeKilled(t *testing.T) {
	k := &killed{t: t, dir: t.TempDir(), addr: "127.0.0.1:" + freePorts(t, 1)[0]}
	rng, longest := rand.New(rand.NewPCG(1, uint64(*kills))), time.Duration(0)
	// The kills come from beside, whatever is under way.
	stopped, over := make(chan struct{}), make(chan struct{})
	k.start(nil)
	pauses := make([]time.Duration, *kills)
	for i := range pauses {
		pauses[i] = time.Duration(rng.IntN(400)) * time.Millisecond
	}
	go func() {
		defer close(stopped)
		for _, pause := range pauses {
			waitUp(k.addr)
			time.Sleep(pause)
			_ = k.cmd.Process.Kill()
			_ = k.cmd.Wait()
			k.start(nil)
		}
	}()
	var first sizesAnswer
	start := map[string]any{"id": "0123456789", "global_batch": 240, "ranks": []map[string]any{{"name": "a"}, {"name": "b"}, {"name": "c"}}}
	k.post("POST", "/v1/jobs/job/generations", start, &first)
	now, reports, answers, accepted := first, []any{}, []sizesAnswer{}, 0
	for round := 0; ; round++ {
		select {
		case <-stopped:
			close(over)
		default:
		}
		report := now.report(round, rng)
		now = sizesAnswer{}
		begun := time.Now()
		k.post("POST", "/v1/jobs/job/reports", report, &now)
		longest = max(longest, time.Since(begun))
		reports, answers, accepted = append(reports, report), append(answers, now), accepted+1
		select {
		case <-over:
		default:
			continue
		}
		break
	}
	var state struct{ Rounds int }
	k.post("GET", "/v1/jobs/job", nil, &state)
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
	if state.Rounds != accepted {
		t.Errorf("%d rounds are known, %d were accepted", state.Rounds, accepted)
	}
	twin, err := serve.New(t.Context(), serve.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error, 1)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { ends <- twin.Serve(ctx, l) }()
	k.addr = l.Addr().String()
	k.post("POST", "/v1/jobs/job/generations", start, &first)
	again := 0
	for i, report := range reports {
		var got sizesAnswer
		k.post("POST", "/v1/jobs/job/reports", report, &got)
		if got.Verdict != "accepted" {
			t.Fatalf("round %d: %s by the twin", i, got.Verdict)
		}
		switch want := &answers[i]; {
		case want.Verdict == "duplicate":
			again++ // it was kept, its answer was lost; this one may have the sizes after it
		case want.Sizes.Plan != got.Sizes.Plan || !slices.Equal(want.shares(), got.shares()):
			t.Fatalf("round %d: plan %d %v; that of the twin is %d %v", i, want.Sizes.Plan, want.shares(), got.Sizes.Plan, got.shares())
		}
	}
	stop()
	if err := <-ends; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	t.Logf("%d rounds, %d kills, %d answers lost, the longest time without an answer %v", accepted, *kills, again, longest.Round(time.Millisecond))
}

// waitUp waits until an address takes connections.
func waitUp(addr string) {
	for range 5000 {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = c.Close()
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A folder has one service; flags that contradict each other are said.
func TestServeState(t *testing.T) {
	k := &killed{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	up := watched{sign: "serving", seen: make(chan struct{})}
	k.start(&up)
	defer func() {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
	}()
	select {
	case <-up.seen:
	case <-time.After(time.Minute):
		t.Fatal("it does not come up")
	}
	out, err := exec.Command("evenkeel", "serve", "--state", k.dir, "--listen", "127.0.0.1:0").CombinedOutput()
	if want := fmt.Sprintf("%s is in use by another service", k.dir); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s", err, out)
	}
}
