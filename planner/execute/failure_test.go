package execute

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"evenkeel/planner"
	"evenkeel/train"
)

func runs(c *Client, ctx context.Context) error {
	_, err := c.Run(ctx)
	return err
}

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
				if k != dead && (!errors.Is(err, errLost) || !strings.Contains(err.Error(), fmt.Sprintf("stage %d (", dead))) {
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
	if err := errs[0]; !errors.Is(err, errLost) || !strings.Contains(err.Error(), "stage 1 (") || !strings.Contains(err.Error(), "nothing came or went for 200ms") {
		t.Error(err)
	}
	if !errors.Is(errs[1], errLost) {
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
			go func() { clients <- runs(c, context.WithoutCancel(ctx)) }()
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
		go func() { clients <- runs(f.clients[0], ctx) }()
		go func() { clients <- runs(f.clients[1], t.Context()) }()
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
		go func() { clients <- runs(f.clients[0], t.Context()) }()
		if _, err := f.server.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-clients; err == nil || !strings.Contains(err.Error(), "the server was interrupted") {
			t.Error(err)
		}
	})
}

// A stranger gets an error, and the run goes on without it.
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
		if err := runs(c, t.Context()); !errors.Is(err, mark) || !strings.Contains(err.Error(), text) {
			t.Errorf("the client says %v; want %q", err, text)
		}
		if got := <-said; !strings.Contains(got, server) {
			t.Errorf("the server says %q; want %q", got, server)
		}
	}
	other := planOf(12, 3, []int{1, 4}, nil)
	expect(&Client{Job: jobOf(t, other, d.net), Stage: 1, Keys: keys}, errRefused, "another plan", "another plan")
	wide, err := train.MLP(6, 9, 8, 9, 4)
	if err != nil {
		t.Fatal(err)
	}
	expect(&Client{Job: jobOf(t, plan, wide), Stage: 1, Keys: keys}, errRefused, "another model", "another model")

	// Keys of another authority, of another stage, expired since they were loaded.
	dir := t.TempDir()
	if err := MakeKeys(dir, 2, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	mine := &Client{Job: f.clients[0].Job, Stage: 1, Keys: keysOf(t, dir, 1)}
	expect(mine, errKeys, "not from this side's authority", "refuses this side's")
	half := &Keys{stage: 1, own: keysOf(t, dir, 1).own, authority: keys.authority}
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: half}, errKeys, "refuses this side's", "not from this side's authority")
	late := *keys
	late.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: &late}, errKeys, "has expired", "refuses this side's")
	expect(&Client{Job: f.clients[0].Job, Stage: 1, Keys: f.server.Keys}, errKeys, "refuses this side's", "certificate")

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

	if err := runs(f.clients[0], t.Context()); err != nil {
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
	go func() { ended <- runs(first, t.Context()) }()
	<-there
	if err := runs(again, t.Context()); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "joined already") {
		t.Error(err)
	}
	go func() { ended <- runs(last, t.Context()) }()
	if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
		t.Error(err)
	}
}

func TestDiverged(t *testing.T) {
	d := mlp(t)
	f := newFleet(t, jobOf(t, planOf(12, 3, []int{2, 4}, nil), d.net), d, 500)
	f.server.Training.Optimizer = train.Optimizer{Method: train.SGD, Rate: 1e30}
	_, errs := f.run(t.Context())
	if !errors.Is(errs[0], errDiverged) || errs[1] == nil || !strings.Contains(errs[1].Error(), "NaN or infinite") {
		t.Error(errs)
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
			return errUnsupported
		},
		"stages[1].strategies[0].sharding asks for sharding full": func(p *planner.Plan) error {
			p.Stages[1].Strategies[0].Sharding = planner.Full
			return errUnsupported
		},
		"micro_batch asks for": func(p *planner.Plan) error {
			p.GlobalBatch, p.MicroBatch = 1<<28, 1<<28
			p.Stages[0].Groups[0].MicroBatches[0], p.Stages[1].Groups[0].MicroBatches[0] = 1<<28, 1<<28
			return errUnsupported
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
	if err := (Training{Optimizer: adam}).validate(); !errors.Is(err, train.ErrUsage) {
		t.Error(err)
	}
	if err := (Training{Steps: 1}).validate(); !errors.Is(err, train.ErrUsage) {
		t.Error(err)
	}
}

func TestReachable(t *testing.T) {
	from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 999}
	for listen, want := range map[string]string{
		"10.0.0.2:70": "10.0.0.2:70", "0.0.0.0:70": "10.0.0.7:70", "[::]:70": "10.0.0.7:70", ":70": "10.0.0.7:70", "here:70": "here:70", "": "",
	} {
		if got := reachable(listen, from); got != want {
			t.Errorf("%q is reached at %q, want %q", listen, got, want)
		}
	}
}
