package execute

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync"
	"time"
)

// Client is the process of a stage after the first. Set the fields, then call Run once.
type Client struct {
	Job   *Job
	Stage int // from 1
	Keys  *Keys
	// Server is the first stage's address, host:port.
	Server string
	// Listener is where the next stage connects; nil in the last stage. Run closes it.
	Listener net.Listener
	// Joined, if set, is called when the server has accepted this stage.
	Joined func()

	timeout time.Duration // set by tests; 0: patience
	worker  *worker
	control *link
	data    []*link // to neighbours
	cancel  context.CancelCauseFunc
	welcome chan welcomeBody
	steps   chan step
	mu      sync.Mutex // guards control and the fields below
	over    bool       // the server needs nothing more from this stage
	ended   bool       // this stage told the server why it ends, or the server told this stage
}

// step is the server's order to run an iteration, or to end the run.
type step struct {
	iteration uint64
	targets   []int32
	last      bool
}

// Run works until the server ends the run. Its error says that the server refused this stage, that certificates are
// wrong, that a stage was lost, or why another stage ended the run. If the context is cancelled, it informs the server and returns the context's error.
func (c *Client) Run(ctx context.Context) (Measured, error) {
	if c.Listener != nil {
		defer func() { _ = c.Listener.Close() }() // it may be closed already
	}
	if c.Stage < 1 || c.Stage >= len(c.Job.Plan.Stages) {
		return Measured{}, fmt.Errorf("%w: stage %d; the plan's clients are 1 to %d", errUnsupported, c.Stage, len(c.Job.Plan.Stages)-1)
	}
	c.timeout = cmp.Or(c.timeout, patience)
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cancel = cancel
	defer cancel(nil)
	c.welcome, c.steps = make(chan welcomeBody, 1), make(chan step, 4)
	stop := context.AfterFunc(ctx, func() { c.end(failBody{Text: fmt.Sprintf("stage %d was interrupted", c.Stage)}, ctx.Err(), 0) })
	defer stop()
	err := c.work(work)
	if err != nil && context.Cause(work) == nil {
		c.end(failBody{Text: fmt.Sprintf("stage %d: %v", c.Stage, err)}, err, 0)
	}
	if c.control != nil {
		c.control.close() // first, so that the server knows why before other stages lose their links
	}
	for _, l := range c.data {
		l.close()
	}
	if c.finished() && err == nil {
		return c.worker.report(), nil
	}
	return Measured{}, context.Cause(work)
}

func (c *Client) work(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	w, err := await(ctx, c.welcome)
	if err != nil {
		return err
	}
	if c.Joined != nil {
		c.Joined()
	}
	if err := w.Training.validate(); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	if c.worker, err = newWorker(c.Job, c.Stage, w.Training); err != nil {
		return err
	}
	if err := c.neighbours(ctx, w); err != nil {
		return err
	}
	for {
		s, err := await(ctx, c.steps)
		if err != nil {
			return err
		}
		if s.last {
			c.mu.Lock()
			c.over = true
			c.mu.Unlock()
			c.control.tell(report, c.worker.report())
			<-ctx.Done() // the server closes when all have reported
			return nil
		}
		if s.iteration == trial {
			taken, send, err := c.worker.measure(ctx, nil, s.targets)
			if err != nil {
				return err
			}
			c.control.tell(ready, readyBody{taken, send})
			continue
		}
		l, err := c.worker.iterate(ctx, s.iteration, nil, s.targets)
		if err != nil {
			return err
		}
		if c.worker.stage.last {
			c.control.send(outgoing{frame: frame{kind: loss, iteration: s.iteration}, body: binary.LittleEndian.AppendUint64(nil, math.Float64bits(l))})
		}
	}
}

// enter connects to the server and introduces this stage.
func (c *Client) enter(ctx context.Context) error {
	l, err := dial(ctx, c.Server, c.Keys, 0, c.timeout)
	if err != nil {
		return err
	}
	h := helloBody{Protocol: protocol, Stage: c.Stage, Plan: c.Job.planHash(), Network: c.Job.Network.Hash()}
	if c.Listener != nil {
		h.Listen = c.Listener.Addr().String()
	}
	limit := maxControlBytes + 4*c.Job.Plan.GlobalBatch*c.Job.Network.Positions()
	l.start(limit, c.order, c.serverLost)
	l.tell(hello, h)
	c.mu.Lock()
	c.control = l
	c.mu.Unlock()
	return nil
}

func dial(ctx context.Context, address string, k *Keys, peer int, timeout time.Duration) (*link, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: stage %d cannot be reached at %s: %w", errLost, peer, address, err)
	}
	return secure(ctx, conn, k, peer, timeout)
}

// neighbours connects to the previous stage, and waits for the next one.
func (c *Client) neighbours(ctx context.Context, w welcomeBody) error {
	prev, err := dial(ctx, cmp.Or(w.Previous, c.Server), c.Keys, c.Stage-1, c.timeout)
	if err != nil {
		return err
	}
	c.data, c.worker.prev = append(c.data, prev), prev
	prev.start(4*c.worker.in.size, c.worker.fromPrevious, c.neighbourLost)
	prev.tell(join, joinBody{w.Run})
	if c.worker.stage.last {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = c.Listener.Close() })()
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		next, err := secure(ctx, conn, c.Keys, -1, c.timeout)
		if err != nil {
			continue // not a stage; if it was the next stage, it informs the server itself
		}
		if next.peer != c.Stage+1 || joined(next, w.Run) != nil {
			next.close()
			continue
		}
		c.data, c.worker.next = append(c.data, next), next
		next.start(4*c.worker.out.size, c.worker.fromNext, c.neighbourLost)
		return nil
	}
}

// joined reads the first frame of the next stage, and checks that it belongs to the same run.
func joined(l *link, run string) error {
	f, body, err := readFrame(l.conn, maxControlBytes, nil)
	if err != nil {
		return err
	}
	var j joinBody
	if f.kind != join || decode(body, &j) != nil || j.Run != run {
		return fmt.Errorf("%w: %s belongs to another run", errFrame, l)
	}
	return nil
}

func (c *Client) order(f frame, body []byte) error {
	switch f.kind {
	case welcome:
		var w welcomeBody
		if err := decode(body, &w); err != nil {
			return err
		}
		if offer(c.welcome, w) {
			return nil
		}
	case begin, finish:
		s := step{iteration: f.iteration, last: f.kind == finish}
		if c.Stage == len(c.Job.Plan.Stages)-1 && !s.last {
			s.targets = make([]int32, c.Job.Plan.GlobalBatch*c.Job.Network.Positions())
			if err := words(s.targets, body); err != nil {
				return err
			}
		}
		if offer(c.steps, s) {
			return nil
		}
	case fail:
		var b failBody
		if err := decode(body, &b); err != nil {
			return err
		}
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		c.cancel(b.error())
		return nil
	}
	return fmt.Errorf("%w: kind %d from the server", errFrame, f.kind)
}

// verdictTime is how long a stage that lost a neighbour waits for the server to report which stage was lost first.
const verdictTime = 2 * time.Second

func (c *Client) serverLost(l *link, err error) {
	if c.finished() {
		c.cancel(nil)
		return
	}
	c.cancel(fmt.Errorf("%w the server, %s: %w", errLost, l, err))
}

// neighbourLost is called when a link to a neighbour ends.
func (c *Client) neighbourLost(l *link, err error) {
	if c.finished() {
		return
	}
	text := fmt.Sprintf("%s: %v", l, err)
	c.end(failBody{Text: text, Lost: true}, fmt.Errorf("%w %s", errLost, text), verdictTime)
}

func (c *Client) finished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end tells the server why this stage ends, once, and ends the work with err after a while.
func (c *Client) end(b failBody, err error, after time.Duration) {
	c.mu.Lock()
	told, control := c.ended || c.over, c.control
	c.ended = true
	c.mu.Unlock()
	if !told && control != nil {
		control.tell(fail, b)
	}
	if after == 0 {
		c.cancel(err)
		return
	}
	time.AfterFunc(after, func() { c.cancel(err) })
}
