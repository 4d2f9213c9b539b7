package execute

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/planner"
	"github.com/evenkeel/evenkeel/train"
)

// endless is a run that somebody must end.
const endless = 1 << 30

// cut breaks all connections of a stage, as its death would.
func (f *fleet) cut(stage int) {
	if stage == 0 {
		f.server.mu.Lock()
		defer f.server.mu.Unlock()
		for _, c := range f.server.clients {
			if c != nil {
				_ = c.control.wire.Close()
			}
		}
		_ = f.server.next.wire.Close()
		return
	}
	c := f.clients[stage-1]
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.control.wire.Close()
	for _, l := range c.data {
		_ = l.wire.Close()
	}
}

// A stage that dies in the middle of a step is named by all others, soon.
func TestDeadStage(t *testing.T) {
	for dead := range 3 {
		t.Run(fmt.Sprint("stage ", dead), func(t *testing.T) {
			t.Parallel()
			d := mlp(t)
			f := newFleet(t, jobOf(t, planOf(12, 3, []int{1, 2, 4}, nil), d.net), d, endless)
			var died time.Time
			f.server.Each = func(done int, _ float64) {
				if done == 3 {
					died = time.Now()
					f.cut(dead)
				}
			}
			_, errs := f.run(t.Context())
			if took := time.Since(died); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			for k, err := range errs {
				if k != dead && (!errors.Is(err, ErrLost) || !strings.Contains(err.Error(), fmt.Sprintf("stage %d (", dead))) {
					t.Errorf("stage %d says: %v", k, err)
				}
			}
		})
	}
}

// A stage that stands still, without closing anything, is named too.
func TestStillStage(t *testing.T) {
	d := mlp(t)
	f := newFleet(t, jobOf(t, planOf(12, 3, []int{1, 2, 4}, nil), d.net), d, 10)
	f.server.timeout = 200 * time.Millisecond
	f.clients = f.clients[:1]               // stage 2 does not come at all,
	f.clients[0].timeout = 60 * time.Second // and stage 1 has nothing to say for 12 s
	_, errs := f.run(t.Context())
	if err := errs[0]; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "stage 1 (") || !strings.Contains(err.Error(), "nothing came or went for 200ms") {
		t.Error(err)
	}
	if !errors.Is(errs[1], ErrLost) {
		t.Error(errs[1])
	}
}

// Ctrl-C on the server keeps what was done; on a client it ends the run, which says who.
func TestInterrupt(t *testing.T) {
	d := mlp(t)
	j := jobOf(t, planOf(12, 3, []int{1, 2, 4}, nil), d.net)
	t.Run("server", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFleet(t, j, d, endless)
		f.server.Each = func(done int, _ float64) {
			if done == 5 {
				cancel()
			}
		}
		clients := make(chan error, 2)
		for _, c := range f.clients {
			go func() { clients <- c.Run(context.WithoutCancel(ctx)) }()
		}
		r, err := f.server.Run(ctx)
		if !errors.Is(err, context.Canceled) || len(r.Losses) != 5 || len(r.Stages) != 3 || r.Stages[2].Iterations != 4 {
			t.Errorf("%v, %+v", err, r)
		}
		if err := errors.Join(<-clients, <-clients); err != nil {
			t.Error(err)
		}
	})
	t.Run("client", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newFleet(t, j, d, endless)
		f.server.Each = func(done int, _ float64) {
			if done == 5 {
				cancel()
			}
		}
		clients := make(chan error, 2)
		go func() { clients <- f.clients[0].Run(ctx) }()
		go func() { clients <- f.clients[1].Run(t.Context()) }()
		_, err := f.server.Run(t.Context())
		if err == nil || err.Error() != "stage 1 was interrupted" {
			t.Errorf("the server says: %v", err)
		}
		for range 2 {
			if err := <-clients; !errors.Is(err, context.Canceled) && err.Error() != "stage 1 was interrupted" {
				t.Errorf("a client says: %v", err)
			}
		}
	})
	t.Run("waiting", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFleet(t, j, d, 5)
		f.clients = f.clients[1:]
		f.clients[0].Server = f.server.Listener.Addr().String()
		f.server.Log = func(string) { cancel() }
		clients := make(chan error, 1)
		go func() { clients <- f.clients[0].Run(t.Context()) }()
		if _, err := f.server.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-clients; err == nil || !strings.Contains(err.Error(), "the server was interrupted") {
			t.Error(err)
		}
	})
}

// Whoever does not belong to the run is told so, and the run goes on without.
func TestStrangers(t *testing.T) {
	d := mlp(t)
	plan := planOf(12, 3, []int{2, 4}, nil)
	f := newFleet(t, jobOf(t, plan, d.net), d, 3)
	address := f.server.Listener.Addr().String()
	said := make(chan string, 20)
	f.server.Log = func(m string) { said <- m }
	ended := make(chan error, 1)
	go func() {
		_, err := f.server.Run(t.Context())
		ended <- err
	}()
	keys := f.clients[0].Keys
	expect := func(c *Client, mark error, text, server string) {
		t.Helper()
		c.Server = address
		if err := c.Run(t.Context()); !errors.Is(err, mark) || !strings.Contains(err.Error(), text) {
			t.Errorf("the client says %v; want %q", err, text)
		}
		if got := <-said; !strings.Contains(got, server) {
			t.Errorf("the server says %q; want %q", got, server)
		}
	}
	other := planOf(12, 3, []int{1, 4}, nil)
	expect(&Client{Job: jobOf(t, other, d.net), Stage: 1, Keys: keys}, ErrRefused, "another plan", "another plan")
	wide, err := train.MLP(6, 9, 8, 9, 4)
	if err != nil {
		t.Fatal(err)
	}
	expect(&Client{Job: jobOf(t, plan, wide), Stage: 1, Keys: keys}, ErrRefused, "another model", "another model")

	// Keys of another authority, of another stage, expired since they were loaded.
	dir := t.TempDir()
	if err := MakeKeys(dir, 2, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	mine := &Client{Job: f.clients[0].Job, Stage: 1, Keys: keysOf(t, dir, 1)}
	expect(mine, ErrKeys, "not from this side's authority", "refuses this side's")
	half := &Keys{stage: 1, own: keysOf(t, dir, 1).own, authority: keys.authority}
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: half}, ErrKeys, "refuses this side's", "not from this side's authority")
	late := *keys
	late.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: &late}, ErrKeys, "has expired", "refuses this side's")
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: f.server.Keys}, ErrKeys, "refuses this side's", "certificate")

	// No TLS at all, TLS that says nothing of sense, and one that speaks a future version.
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if got := <-said; !strings.Contains(got, "TLS with") {
		t.Error(got)
	}
	_ = conn.Close()
	for body, want := range map[string]string{"": "does not say who it is", `{"protocol": 99, "stage": 1}`: "version 99", `{"protocol": 1, "stage": 7}`: "says that it is stage 7"} {
		conn, err := tls.Dial("tcp", address, keys.config(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(append(appendHeader(nil, frame{kind: hello}, len(body)), body...)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until it is sent away
		_ = conn.Close()
		if got := <-said; !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}

	if err := f.clients[0].Run(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A stage that is there already is not taken again.
func TestTwice(t *testing.T) {
	d := mlp(t)
	f := newFleet(t, jobOf(t, planOf(12, 3, []int{1, 2, 4}, nil), d.net), d, 3)
	again := &Client{Job: f.server.Job, Stage: 1, Keys: f.clients[0].Keys, Server: f.clients[0].Server, Listener: listen(t)}
	first, last := f.clients[0], f.clients[1]
	ended := make(chan error, 3)
	there := make(chan struct{}, 9)
	f.server.Log = func(string) { there <- struct{}{} }
	go func() {
		_, err := f.server.Run(t.Context())
		ended <- err
	}()
	go func() { ended <- first.Run(t.Context()) }()
	<-there
	if err := again.Run(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "there already") {
		t.Error(err)
	}
	go func() { ended <- last.Run(t.Context()) }()
	if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
		t.Error(err)
	}
}

func TestDiverged(t *testing.T) {
	d := mlp(t)
	f := newFleet(t, jobOf(t, planOf(12, 3, []int{2, 4}, nil), d.net), d, 500)
	f.server.Training.Optimizer = train.Optimizer{Method: train.SGD, Rate: 1e30}
	_, errs := f.run(t.Context())
	if !errors.Is(errs[0], ErrDiverged) || errs[1] == nil || !strings.Contains(errs[1].Error(), "no number") {
		t.Error(errs)
	}
}

func TestKeys(t *testing.T) {
	now := time.Now()
	make1 := func(t *testing.T, at time.Time) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "keys")
		if err := MakeKeys(dir, 3, at, time.Hour); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := make1(t, now)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if err := MakeKeys(dir, 1, now, time.Hour); !errors.Is(err, ErrKeys) || !strings.Contains(err.Error(), "there already") {
		t.Error("overwritten:", err)
	}
	for _, c := range []struct {
		stages int
		valid  time.Duration
	}{{0, time.Hour}, {MaxStages + 1, time.Hour}, {1, 0}, {1, 1 << 62}} {
		if err := MakeKeys(t.TempDir(), c.stages, now, c.valid); !errors.Is(err, ErrKeys) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	copyFile := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, spoil := range map[string]func(t *testing.T) (string, time.Time){
		"expired on":               func(t *testing.T) (string, time.Time) { return make1(t, now.Add(-2*time.Hour)), now },
		"is valid from":            func(t *testing.T) (string, time.Time) { return make1(t, now.Add(3*time.Hour)), now },
		"evenkeel plan keys makes": func(t *testing.T) (string, time.Time) { return t.TempDir(), now },
		"can be read by others": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			if err := os.Chmod(filepath.Join(d, keyFile(1)), 0o640); err != nil {
				t.Fatal(err)
			}
			return d, now
		},
		"is not signed by": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(dir, authorityFile), filepath.Join(d, authorityFile))
			return d, now
		},
		"is not stage 1's": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, certificateFile(2)), filepath.Join(d, certificateFile(1)))
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, keyFile(1)))
			return d, now
		},
		"private key does not match": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, keyFile(1)))
			return d, now
		},
		"holds no certificate": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, authorityFile))
			return d, now
		},
	} {
		d, at := spoil(t)
		if _, err := LoadKeys(d, 1, at); !errors.Is(err, ErrKeys) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestUnsupported(t *testing.T) {
	d := mlp(t)
	for want, change := range map[string]func(p *planner.Plan) error{
		"for 3 layers; this network has 4, from dense1 to dense4": func(p *planner.Plan) error {
			p.Stages[1].To, p.Stages[1].Strategies = 3, p.Stages[1].Strategies[:1]
			return planner.ErrPlan
		},
		"stages[0].groups[0].tensor asks for a tensor degree of 2": func(p *planner.Plan) error {
			p.Stages[0].Groups[0].Count, p.Stages[0].Groups[0].Tensor = 2, 2
			return ErrUnsupported
		},
		"stages[1].strategies[0].sharding asks for fully sharded layers": func(p *planner.Plan) error {
			p.Stages[1].Strategies[0].Sharding = planner.Full
			return ErrUnsupported
		},
		"micro_batch asks for": func(p *planner.Plan) error {
			p.GlobalBatch, p.MicroBatch = 1<<28, 1<<28
			p.Stages[0].Groups[0].MicroBatches[0], p.Stages[1].Groups[0].MicroBatches[0] = 1<<28, 1<<28
			return ErrUnsupported
		},
		"version": func(p *planner.Plan) error { p.Version = 7; return planner.ErrPlan },
	} {
		p := planOf(12, 3, []int{2, 4}, nil)
		p.Stages[0].Groups[0].Device = "other"
		mark := change(p)
		if _, err := NewJob(p, d.net); !errors.Is(err, mark) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := (Training{Optimizer: adam}).Validate(); !errors.Is(err, train.ErrUsage) {
		t.Error(err)
	}
	if err := (Training{Steps: 1}).Validate(); !errors.Is(err, train.ErrUsage) {
		t.Error(err)
	}
}

// Whatever comes over a link, the reader takes frames that are written the same way, or errs without taking more memory
// than the limit.
func FuzzFrame(f *testing.F) {
	hi, err := json.Marshal(helloBody{Protocol: protocol, Stage: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(appendHeader(nil, frame{kind: hello}, len(hi)), hi...))
	f.Add(append(appendHeader(nil, frame{activation, 7, 2}, 8), appendFloats(nil, []float32{1, -2})...))
	f.Add(appendHeader(nil, frame{kind: begin}, 1<<31-1))
	f.Add(appendHeader(nil, frame{kind: kinds}, 0))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\nand more of it"))
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		r := strings.NewReader(string(in))
		var buffer, back []byte
		for {
			head, body, err := readFrame(r, limit, buffer)
			if err != nil {
				if !errors.Is(err, ErrFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				break
			}
			if len(body) > limit {
				t.Fatalf("a body of %d bytes", len(body))
			}
			back = append(appendHeader(back, head, len(body)), body...)
			values, whole := make([]float32, 2), make([]int32, 2)
			if err := floats(values, body); (err == nil) != (len(body) == 8) {
				t.Fatal(err)
			}
			if err := targets(whole, body); err == nil && string(appendTargets(nil, whole)) != string(body) {
				t.Fatal("other targets")
			}
			buffer = body
		}
		if !strings.HasPrefix(string(in), string(back)) {
			t.Fatalf("read %x from %x", back, in)
		}
	})
}
