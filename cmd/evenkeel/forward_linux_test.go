package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/slow"
)

// forwardServer is evenkeel forward serve, with the tokens that it wrote.
type forwardServer struct {
	t      *testing.T
	url    string
	tokens map[string]string
}

func serveForward(t *testing.T) *forwardServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	store := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command("evenkeel", "forward", "serve", "--store", store, "--listen", address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	s := &forwardServer{t, "nats://" + address, map[string]string{}}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, err := os.ReadFile(filepath.Join(store, "tokens"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		who, token, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.tokens[who] = token
	}
	return s
}

// command is a command about a run on the server, in the name of launch or of a rank.
func (s *forwardServer) command(who string, args ...string) *exec.Cmd {
	cmd := exec.Command("evenkeel", append([]string{"forward"}, append(args, "--url", s.url)...)...)
	cmd.Env = append(os.Environ(), "EVENKEEL_NATS_TOKEN="+s.tokens[who])
	return cmd
}

// output runs a command of launch's.
func (s *forwardServer) output(args ...string) string {
	s.t.Helper()
	cmd := s.command("launch", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", args, err, errs.String())
	}
	return string(text)
}

// forwardSummary is the part of summaries that is compared.
type forwardSummary struct {
	Steps       int      `json:"steps"`
	Of          int      `json:"of"`
	WeightsHash []string `json:"weights_hash"`
	Transport   any      `json:"transport"`
	Validation  any      `json:"validation"`
}

// launch creates a run of four processors and waits until it is on the server. The result is launch's summary, at the end.
func (s *forwardServer) launch(name string, args ...string) (result func() forwardSummary) {
	s.t.Helper()
	cmd := s.command("launch", append([]string{"launch", "--json", "-n", "4", "--run", name}, args...)...)
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines, said := bufio.NewScanner(errs), ""
	for strings.Count(said, "forward join") < 4 && lines.Scan() {
		said += lines.Text() + "\n"
	}
	return func() (result forwardSummary) {
		s.t.Helper()
		for lines.Scan() {
			said += lines.Text() + "\n"
		}
		if err := cmd.Wait(); err != nil {
			s.t.Fatalf("%v\n%s", err, said)
		}
		if err := json.Unmarshal(out.Bytes(), &result); err != nil {
			s.t.Fatal(err)
		}
		return result
	}
}

// join runs a rank, and starts it again whenever it is killed. kill kills it once.
func (s *forwardServer) join(done *sync.WaitGroup, name string, rank int, args ...string) (kill func()) {
	var mu sync.Mutex
	var running *exec.Cmd
	done.Go(func() {
		for {
			cmd := s.command("rank"+strconv.Itoa(rank), append([]string{"join", "--run", name, "--rank", strconv.Itoa(rank)}, args...)...)
			mu.Lock()
			running = cmd
			err := cmd.Start()
			mu.Unlock()
			if err == nil {
				err = cmd.Wait()
			}
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || !status.Signaled() {
				if err != nil {
					s.t.Errorf("rank %d: %v", rank, err)
				}
				return
			}
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		_ = running.Process.Kill()
	}
}

// replayed is the hash of the weights that follow from a run's log, which any client can write.
func (s *forwardServer) replayed(name string) string {
	s.t.Helper()
	log := filepath.Join(s.t.TempDir(), name+".log")
	s.output("export", name, "--log", log)
	text, err := exec.Command("evenkeel", "forward", "replay", "--json", log).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var r struct {
		WeightsHash string `json:"weights_hash"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		s.t.Fatal(err)
	}
	return r.WeightsHash
}

// A run over processes comes to the weights of a run in one process; it can be looked at, stopped and removed.
func TestForwardOverProcesses(t *testing.T) {
	s := serveForward(t)
	var done sync.WaitGroup
	result := s.launch("whole", "--steps", "150")
	for rank := range 4 {
		s.join(&done, "whole", rank, "--patience", "1m")
	}
	got := result()
	done.Wait()
	text, err := exec.Command("evenkeel", "forward", "train", "-n", "4", "--steps", "150", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want forwardSummary
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got.WeightsHash, " ") != strings.Join(want.WeightsHash, " ") || len(want.WeightsHash) != 4 || got.Transport == nil {
		t.Errorf("%+v, want the weights of %+v", got, want)
	}
	if hash := s.replayed("whole"); hash != want.WeightsHash[0] {
		t.Errorf("the log leads to %s", hash)
	}

	result = s.launch("long", "--steps", "200000")
	for rank := range 4 {
		s.join(&done, "long", rank)
	}
	s.output("stop", "long")
	if got := result(); got.Steps%64 != 0 || got.Steps >= got.Of {
		t.Errorf("stopped: %+v", got)
	}
	done.Wait()
	if out := s.output("runs", "long"); !strings.Contains(out, "of 200000, stopped") {
		t.Errorf("runs long: %s", out)
	}
	s.output("remove", "long")
	if out := s.output("runs", "--json"); !strings.Contains(out, `"name": "whole"`) || strings.Contains(out, "long") {
		t.Errorf("runs: %s", out)
	}

	result = s.launch("validated", "--steps", "4000", "--learning-rate", "0.2", "--no-guard", "--schedule", "constant", "--stop-after", "128")
	for rank := range 4 {
		s.join(&done, "validated", rank)
	}
	if got := result(); got.Steps >= got.Of || got.Validation == nil {
		t.Errorf("stopped by validation: %+v", got)
	}
	done.Wait()
	for _, command := range [][]string{{"runs", "nothing"}, {"stop", "nothing"}, {"remove", "nothing"}} {
		if out, err := s.command("launch", command...).CombinedOutput(); err == nil || !strings.Contains(string(out), "no such run: nothing") {
			t.Errorf("%s: %v, %s", command, err, out)
		}
	}
	if out, err := s.command("rank1", "join", "--run", "whole", "--rank", "0").CombinedOutput(); err == nil || !strings.Contains(string(out), "EVENKEEL_NATS_TOKEN") {
		t.Errorf("a rank with another rank's token: %v, %s", err, out)
	}
}

// Processes of a run are killed and started again; all end with the weights that the log leads to. (They are back before the
// others lose patience; package forward has tests of those that stay away.)
func TestForwardSurvivesKills(t *testing.T) {
	slow.Skip(t)
	s := serveForward(t)
	result := s.launch("killed", "--steps", "6000")
	var done sync.WaitGroup
	var kill [4]func()
	for rank := range kill {
		kill[rank] = s.join(&done, "killed", rank)
	}
	for _, rank := range []int{2, 0, 2} {
		time.Sleep(600 * time.Millisecond)
		kill[rank]()
	}
	got := result()
	done.Wait()
	want := s.replayed("killed")
	if len(got.WeightsHash) != 4 {
		t.Errorf("%+v", got)
	}
	for rank, h := range got.WeightsHash {
		if h != want {
			t.Errorf("processor %d has %s, the log leads to %s", rank, h, want)
		}
	}
}
