package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"evenkeel/internal/slow"
	"evenkeel/serve"
	"evenkeel/serve/journal"
)

var (
	losses = flag.Int("losses", 30, "how often TestServePowerLoss loses power")
	rounds = flag.Int("powered", 300, "rounds of each job of TestServePowerLoss")
)

// powered is what a service did while it was recorded, and what its clients were told.
type powered struct {
	state  string
	calls  []syscallEvent
	shares map[string]map[int][]int // by job and plan
	sent   map[string]int           // reports, by job
}

// A service whose machine loses power at any moment loses no report that it called accepted, and goes on with the sizes that it gave out.
func TestServePowerLoss(t *testing.T) {
	slow.Skip(t)
	p := record(t)
	// Moments around what is rare count as much as all others.
	var rare, all []int
	for i, e := range p.calls {
		if all = append(all, i); e.begun && e.name != "pwrite64" && e.name != "fsync" && strings.Contains(unhex(e.args[:min(len(e.args), 2000)]), p.state) {
			rare = append(rare, i)
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	accepted, told := 0, 0
	for k := range *losses {
		at := all[r.IntN(len(all))]
		if k%2 == 1 {
			at = min(max(rare[r.IntN(len(rare))]+r.IntN(41)-5, 0), len(all)-1)
		}
		for _, orderly := range []bool{false, true} {
			n := p.lose(t, at, orderly, rand.New(rand.NewPCG(uint64(k), 9)))
			accepted, told = accepted+n, told+1
		}
		if t.Failed() {
			t.Fatalf("loss %d: power fails at call %d of %d", k, at, len(all))
		}
	}
	t.Logf("%d losses of power over %d calls, %d of them to the disk and rare; %d accepted rounds were there on the average", told, len(all), len(rare), accepted/max(told, 1))
}

// record runs a service under strace, with jobs that come and go.
func record(t *testing.T) *powered {
	t.Helper()
	dir, out := filepath.Join(t.TempDir(), "journal", "state"), filepath.Join(t.TempDir(), "calls")
	if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	p := &powered{state: dir, shares: map[string]map[int][]int{}, sent: map[string]int{}}
	k := traced(t, dir, nil, "-y", "-xx", "--seccomp-bpf", "-s", "100000000", "-e", "trace="+syscalls, "-o", out)
	names := []string{"a", "b", "c"}
	now := map[string]*sizesAnswer{}
	rng := rand.New(rand.NewPCG(3, 4))
	begin := func(job string) {
		var ranks []map[string]any
		for i := range 3 {
			ranks = append(ranks, map[string]any{"name": fmt.Sprintf("rank-%s-%d", job, i)})
		}
		now[job] = &sizesAnswer{}
		k.post("POST", "/v1/jobs/"+job+"/generations", map[string]any{"id": "0123456789", "global_batch": 240, "ranks": ranks}, now[job])
		p.shares[job] = map[int][]int{1: now[job].shares()}
	}
	for _, job := range names {
		begin(job)
	}
	for round := range *rounds {
		for _, job := range names {
			p.tell(k, job, p.sent[job], now[job], rng)
		}
		if round == *rounds/2 { // one that is over goes, and others come
			if out, err := exec.Command("evenkeel", "jobs", "delete", "c", "--url", "http://"+k.addr).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			names[2] = "d"
			begin("d")
		}
	}
	k.end(syscall.SIGTERM)
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	p.calls = readTrace(t, string(text))
	return p
}

// tell reports a round.
func (p *powered) tell(k *killed, job string, round int, now *sizesAnswer, rng *rand.Rand) {
	k.t.Helper()
	report := now.report(round, rng)
	*now = sizesAnswer{}
	if k.post("POST", "/v1/jobs/"+job+"/reports", report, now); now.Verdict != "accepted" {
		k.t.Fatalf("%s, round %d: %s", job, round, now.Verdict)
	}
	p.sent[job]++
	p.shares[job][now.Sizes.Plan] = now.shares()
}

// acceptance is an answer, and whose: the names of ranks say so.
var acceptance = regexp.MustCompile(`"verdict":"accepted".*?"name":"rank-(\w+)-0"`)

// lose loses power at a call, and holds what is there afterwards to what clients had been told. It returns the rounds that are.
func (p *powered) lose(t *testing.T, at int, orderly bool, r *rand.Rand) int {
	t.Helper()
	d := newPowerDisk(t, filepath.Dir(p.state), orderly)
	told, gone := map[string]int{}, false
	for i := range p.calls[:at+1] {
		e := &p.calls[i]
		if e.begun && e.name == "write" && strings.HasPrefix(described(e.args), "socket:") {
			if text := quoted(e.args)[0]; strings.Contains(text, "204 No Content") {
				gone = true // c was deleted
			} else if m := acceptance.FindStringSubmatch(text); m != nil {
				told[m[1]]++
			}
		}
		d.event(e)
	}
	dir := t.TempDir()
	if err := d.write(dir, r); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	kept, err := journal.Open(t.Context(), journal.Options{Dir: filepath.Join(dir, "state")})
	if err != nil {
		t.Errorf("orderly %v: the journal does not open: %v", orderly, err)
		return 0
	}
	defer kept.Close()
	s, err := serve.New(t.Context(), serve.Config{Journal: kept, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := 0
	for job, want := range told {
		state, ok := s.Job(job)
		switch {
		case job == "c" && !ok && at > 0: // it was, or was about to be, deleted
			if !gone && told["c"] <= *rounds/2 {
				t.Errorf("orderly %v: job c is gone, of which %d rounds were accepted", orderly, want)
			}
		case job == "c" && gone:
			t.Errorf("orderly %v: a job that was deleted is back", orderly)
		case !ok || state.Rounds < want || state.Rounds > p.sent[job]:
			t.Errorf("orderly %v: job %s has %d rounds; %d were accepted\n%s", orderly, job, state.Rounds, want, log.String())
		default:
			n += state.Rounds
			var now []int
			for _, x := range state.Ranks {
				now = append(now, x.Share)
			}
			if before, ok := p.shares[job][state.Plan]; ok && !slices.Equal(now, before) {
				t.Errorf("orderly %v: job %s: plan %d is %v; ranks were told %v", orderly, job, state.Plan, now, before)
			}
		}
	}
	if strings.Contains(log.String(), "register anew") {
		t.Errorf("orderly %v: %s", orderly, log.String())
	}
	return n
}
