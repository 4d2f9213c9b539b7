package clicks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

type object = map[string]any

// program builds evenkeel once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "evenkeel-clicks-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "evenkeel")
	build := exec.Command("go", "build", "-o", path, "./cmd/evenkeel")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// service is a process of evenkeel serve.
type service struct {
	t     *testing.T
	path  string
	at    string // host and port
	state string
	token string
	cmd   *exec.Cmd
	mu    sync.Mutex
	said  bytes.Buffer
}

// Write keeps what the service logs.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(p)
}

func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// serve starts a service with a journal, and with a token unless that is "".
func serve(t *testing.T, token string) *service {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, path: path, at: l.Addr().String(), state: t.TempDir(), token: token}
	_ = l.Close()
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *service) start() {
	s.t.Helper()
	args := []string{"serve", "--listen", s.at, "--state", s.state}
	if s.token != "" {
		file := filepath.Join(s.state, "token")
		if err := os.WriteFile(file, []byte(s.token), 0o600); err != nil {
			s.t.Fatal(err)
		}
		args = append(args, "--token-file", file)
	}
	s.cmd = exec.Command(s.path, args...)
	s.cmd.Stderr = s
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 200 {
		if a, err := http.Get("http://" + s.at + "/livez"); err == nil {
			_ = a.Body.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatalf("the service does not answer:\n%s", s.log())
}

// kill ends the service as kill -9 does.
func (s *service) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// do sends a request, and reads the answer into out unless that is nil.
func (s *service) do(method, path string, body, out any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequest(method, "http://"+s.at+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.token)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	got, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, a.Status, got)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(got, out)
	}
	return err
}

// sizes are what a job's ranks are told.
type sizes struct {
	Generation, Plan int
	Nodes            []struct {
		Share      int
		MicroSteps int `json:"micro_steps"`
	}
}

// job is a job whose ranks take so long per sample.
type job struct {
	*service
	name  string
	pace  []float64
	round int
	sizes sizes
}

// register starts a job with ranks of these names and devices.
func (s *service) register(name string, batch int, names, devices []string, pace ...float64) *job {
	s.t.Helper()
	ranks := []object{}
	for i := range names {
		ranks = append(ranks, object{"name": names[i], "device": devices[i]})
	}
	var out struct{ Sizes sizes }
	if s.token != "" {
		if err := s.do("PUT", "/v1/jobs/"+name, object{}, nil); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.do("POST", "/v1/jobs/"+name+"/generations", object{"id": "0123456789", "global_batch": batch, "ranks": ranks}, &out); err != nil {
		s.t.Fatal(err)
	}
	return &job{service: s, name: name, pace: pace, sizes: out.Sizes}
}

// play reports rounds. A rank whose pace is 0 hands in nothing.
func (j *job) play(rounds int) error {
	for range rounds {
		list, wait := make([]any, len(j.pace)), 0.001
		for i, n := range j.sizes.Nodes {
			if took := float64(n.Share) * j.pace[i]; took > 0 {
				list[i] = object{"seconds": took, "samples": n.Share, "micro_steps": n.MicroSteps}
				wait = max(wait, took)
			}
		}
		var out struct{ Sizes sizes }
		if err := j.do("POST", "/v1/jobs/"+j.name+"/reports", object{"generation": j.sizes.Generation, "round": j.round, "plan": j.sizes.Plan, "wait_seconds": wait, "ranks": list}, &out); err != nil {
			return err
		}
		j.sizes = out.Sizes
		j.round++
	}
	return nil
}

// steadily reports rounds until the function that it returns is called, whether the service is there or not.
func (j *job) steadily(every time.Duration) func() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
				_ = j.play(1)
			}
		}
	}()
	return func() { close(stop); <-done }
}

// page is a tab of Chromium.
type page struct {
	t   *testing.T
	ctx context.Context
	at  string
}

// open starts Chromium. Whatever it complains about fails the test, but for requests that the network or the service refused.
func open(t *testing.T, s *service) *page {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is missing: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(browser), chromedp.WindowSize(1440, 900))
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // of events newer than chromedp
	t.Cleanup(end)
	ctx, end = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(end)
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page failed: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Source != log.SourceNetwork {
				t.Errorf("Chromium says: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	p := &page{t, ctx, "http://" + s.at}
	p.run(log.Enable(), chromedp.EmulateViewport(1440, 900))
	return p
}

func (p *page) run(actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		var shot []byte
		_ = chromedp.Run(p.ctx, chromedp.FullScreenshot(&shot, 100))
		_ = os.WriteFile(filepath.Join(os.TempDir(), "clicks-failed.png"), shot, 0o600)
		p.t.Fatal(err)
	}
}

func (p *page) scheme(name string) {
	p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}))
}

// eval is what an expression comes to.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	var out T
	p.run(chromedp.Evaluate(expression, &out, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return out
}

// wait waits until an expression is true.
func (p *page) wait(expression string) {
	p.t.Helper()
	for range 300 {
		if eval[bool](p, "!!("+expression+")") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.t.Fatalf("never: %s\n%s", expression, eval[string](p, "document.body.innerText"))
}

func (p *page) text(id string) string {
	return strings.TrimSpace(eval[string](p, fmt.Sprintf("document.getElementById(%q).innerText", id)))
}

// spent is the script and all work of the page in so long, in milliseconds a second.
func spent(p *page, d time.Duration) (script, task float64) {
	p.t.Helper()
	read := func() map[string]float64 {
		m := map[string]float64{}
		p.run(performance.Enable(), chromedp.ActionFunc(func(ctx context.Context) error {
			all, err := performance.GetMetrics().Do(ctx)
			for _, x := range all {
				m[x.Name] = x.Value
			}
			return err
		}))
		return m
	}
	before := read()
	time.Sleep(d)
	after := read()
	return 1000 * (after["ScriptDuration"] - before["ScriptDuration"]) / d.Seconds(), 1000 * (after["TaskDuration"] - before["TaskDuration"]) / d.Seconds()
}
