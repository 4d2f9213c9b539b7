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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/internal/slow"
)

var (
	faults = flag.Int("faults", kinds, "how many faults TestServers makes, each kind in turn")
	only   = flag.Int("only", -1, "kind of fault that TestServers makes; -1: each in turn")
	pause  = flag.Duration("pause", time.Second, "how long a fault of TestServers lasts")
)

// process is a command that is started again and again.
type process struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stderr = os.Stderr
	if !testing.Verbose() {
		p.cmd.Stderr = nil
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Error(err)
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// end ends the process by a signal and waits for it.
func (p *process) end(s syscall.Signal) {
	p.signal(s)
	_ = p.cmd.Wait()
}

// gap is how long a job was without an answer.
type gap struct {
	mu      sync.Mutex
	since   time.Time // of the newest answer
	longest time.Duration
	answers int
}

func (g *gap) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest, g.since, g.answers = max(g.longest, time.Since(g.since)), time.Now(), g.answers+1
}

// begin begins to measure, and end waits for further answers.
func (g *gap) begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest, g.answers = 0, 0
}

func (g *gap) end() (longest time.Duration, answers int) {
	g.mu.Lock()
	now := g.answers
	g.mu.Unlock()
	for since := time.Now(); time.Since(since) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		g.mu.Lock()
		longest, answers = g.longest, g.answers
		g.mu.Unlock()
		if answers > now+1 {
			return longest, answers
		}
	}
	return 30 * time.Second, answers
}

// servers are three services on a NATS cluster of three.
type servers struct {
	t        *testing.T
	nats     []*process
	services []*process
	gates    [][]*gate // by service, to NATS
	routes   [][]*gate // by NATS server, to the others
	urls     []string
	natsURL  string
	history  *history
	over     atomic.Bool
	gaps     []gap // by job
}

func newServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{t: t, history: newHistory()}
	ports, routes := freePorts(t, 3), freePorts(t, 3)
	for k := range 3 {
		var others []string
		s.routes = append(s.routes, make([]*gate, 3))
		for i := range 3 {
			if i != k {
				s.routes[k][i] = newGate(t, routes[i])
				_, port, _ := net.SplitHostPort(s.routes[k][i].listen.Addr().String())
				others = append(others, port)
			}
		}
		p := &process{t: t, args: []string{"natsnode", "n" + strconv.Itoa(k), ports[k], routes[k], strings.Join(others, ","), filepath.Join(t.TempDir(), "nats")}}
		s.nats = append(s.nats, p)
		s.natsURL += ",nats://127.0.0.1:" + ports[k]
		p.start()
	}
	s.natsURL = s.natsURL[1:]
	s.leader() // there is none at first
	for k, port := range freePorts(t, 3) {
		var own []string
		var gates []*gate
		for i := range ports {
			g := newGate(t, ports[(i+k)%3])
			gates = append(gates, g)
			own = append(own, "nats://"+g.listen.Addr().String())
		}
		s.gates = append(s.gates, gates)
		s.services = append(s.services, &process{t: t, args: []string{"evenkeel", "serve", "--nats", strings.Join(own, ","), "--listen", "127.0.0.1:" + port}})
		s.urls = append(s.urls, "http://127.0.0.1:"+port)
		s.services[k].start()
		waitUp("127.0.0.1:" + port)
	}
	t.Cleanup(func() {
		for _, p := range append(s.services, s.nats...) {
			p.signal(syscall.SIGCONT)
			p.end(syscall.SIGKILL)
		}
	})
	return s
}

// leader waits for the stream's leader, or before there is a stream for JetStream to be ready, and says which server it is.
func (s *servers) leader() int {
	for since := time.Now(); time.Since(since) < time.Minute; time.Sleep(50 * time.Millisecond) {
		conn, err := nats.Connect(s.natsURL, nats.Timeout(time.Second))
		if err != nil {
			continue
		}
		js, err := jetstream.New(conn)
		if err == nil {
			var stream jetstream.Stream
			if stream, err = js.Stream(s.t.Context(), "EVENKEEL_JOBS"); err == nil {
				if c := stream.CachedInfo().Cluster; c != nil && c.Leader != "" {
					conn.Close()
					k, _ := strconv.Atoi(c.Leader[1:])
					return k
				}
			}
		}
		conn.Close()
		if err == jetstream.ErrStreamNotFound { //nolint:errorlint // as it comes
			return 0
		}
	}
	s.t.Error("NATS has no leader within a minute")
	return 0
}

// leaderNow is the name of the stream's leader, as far as a server knows.
func (s *servers) leaderNow() string {
	conn, err := nats.Connect(s.natsURL, nats.Timeout(time.Second))
	if err != nil {
		return ""
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 300*time.Millisecond)
	defer cancel()
	stream, err := js.Stream(ctx, "EVENKEEL_JOBS")
	if err != nil || stream.CachedInfo().Cluster == nil {
		return ""
	}
	return stream.CachedInfo().Cluster.Leader
}

// post sends a request to one service after another until one answers, as a client does, beginning with the one of the number, and returns the number of that which answered.
func (s *servers) post(c *http.Client, at int, path string, body, out any) (int, bool) {
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Error(err)
		return at, false
	}
	for wait := 0; !s.over.Load(); at++ {
		r, err := http.NewRequest(http.MethodPost, s.urls[at%3]+path, bytes.NewReader(text)) //nolint:noctx // the client has a timeout
		if err != nil {
			s.t.Error(err)
			return at, false
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := c.Do(r)
		if err == nil {
			got, failed := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			switch {
			case failed != nil:
			case answer.StatusCode/100 == 2:
				if err := json.Unmarshal(got, out); err != nil {
					s.t.Error(err)
				}
				return at, true
			case answer.StatusCode != http.StatusServiceUnavailable:
				s.t.Errorf("%s: %d %s", path, answer.StatusCode, got)
				return at, false
			}
		}
		if wait++; wait%3 == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return at, false
}

// play is a job until the end: each round is reported once, or to two services at the same time.
func (s *servers) play(k int) {
	job, gap := fmt.Sprintf("job-%d", k), &s.gaps[k]
	rng := rand.New(rand.NewPCG(uint64(k), 3))
	c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	var now sizesAnswer
	start := map[string]any{"id": "0123456789", "global_batch": 240, "ranks": []map[string]any{{"name": "a"}, {"name": "b"}, {"name": "c"}}}
	at, ok := s.post(c, k, "/v1/jobs/"+job+"/generations", start, &now)
	for rounds := 0; ok; rounds++ {
		report := now.report(rounds, rng)
		path := "/v1/jobs/" + job + "/reports"
		var beside sync.WaitGroup
		if rng.IntN(4) == 0 { // another rank's process that thinks it is rank 0
			other := at + 1
			beside.Go(func() {
				var a sizesAnswer
				if _, ok := s.post(c, other, path, report, &a); ok {
					s.history.told(job, rounds, &a)
				}
			})
		}
		now = sizesAnswer{}
		if at, ok = s.post(c, at, path, report, &now); ok {
			s.history.told(job, rounds, &now)
			gap.answered()
		}
		beside.Wait()
		if rng.IntN(20) == 0 {
			at++ // a load balancer
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// Three services on a NATS cluster of three, one of which is paused, killed or cut off at any moment: no round is decided twice, none that was called accepted is
// missing, and jobs go on.
func TestServers(t *testing.T) {
	slow.Skip(t)
	s := newServers(t)
	rng := rand.New(rand.NewPCG(4, 5))
	var all sync.WaitGroup
	const jobs = 6
	s.gaps = make([]gap, jobs)
	for k := range jobs {
		s.gaps[k].since = time.Now()
		all.Go(func() { s.play(k) })
	}
	defer func() {
		s.over.Store(true)
		all.Wait()
	}()
	total := 0
	for k := range *faults {
		for i := range s.gaps {
			s.gaps[i].begin()
		}
		kind := *only
		if kind < 0 {
			kind = k % kinds
		}
		what, longest, rounds := s.fault(kind, rng.IntN(3), *pause), time.Duration(0), 0
		for i := range s.gaps {
			most, answers := s.gaps[i].end()
			longest, rounds = max(longest, most), rounds+answers
			if most >= 30*time.Second {
				t.Fatalf("%s: a job does not go on", what)
			}
		}
		t.Logf("%s: %d rounds, the longest time without an answer %v", what, rounds, longest.Round(time.Millisecond))
		total += rounds
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
	s.over.Store(true)
	all.Wait()
	s.leader()
	s.history.check(t, s.natsURL)
	t.Logf("%d rounds of %d jobs", total, jobs)
}
