package execute

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"evenkeel/train"
)

// errDiverged is wrapped by the error of a run whose loss is not a finite number.
var errDiverged = errors.New("execute: the loss is NaN or infinite")

// Result is the outcome of a run.
type Result struct {
	Losses []float64 `json:"losses"` // of each iteration, the mean over its batch before the update
	// Seconds are the server's of each iteration, from its first pass to the next iteration's.
	Seconds []float64 `json:"seconds"`
	// Median is the median of Seconds, without the first iteration if there are more.
	Median float64 `json:"seconds_per_iteration"`
	// Predicted is the iteration simulated from what each stage took for a micro-batch just before the run. Plan is the prediction in
	// the plan, for the plan's devices; 0 if it has none.
	Predicted float64    `json:"predicted_seconds"`
	Plan      float64    `json:"plan_seconds,omitempty"`
	Stages    []Measured `json:"stages"` // without the clients if the run was cut off
}

// Server is the process of the first stage. It owns the data, gives the orders and gathers the results. Set the fields, then call Run once.
type Server struct {
	Job      *Job
	Training Training
	Data     train.Data
	Keys     *Keys
	// Listener is where clients connect; nil if the plan has one stage, which needs no keys either. Run closes it.
	Listener net.Listener
	// Each, if set, is called after every iteration with the number of iterations done and the loss of the last one.
	Each func(done int, loss float64)
	// Log, if set, receives a line for each client that joins, or is refused and why. Several goroutines may call it at a time.
	Log func(message string)

	timeout time.Duration
	worker  *worker
	order   *train.Order
	batch   train.Batch
	run     string // a random word, by which neighbours know that they belong to one run
	cancel  context.CancelCauseFunc
	arrived chan struct{} // receives one for every client that joined, and one for the data link of the next stage
	losses  chan lossOf
	readies chan readyOf
	reports chan Measured
	all     sync.WaitGroup // of handshakes

	mu      sync.Mutex
	clients []*client // by stage; the first is nil
	next    *link
	failed  bool
}

type client struct {
	control  *link
	listen   string
	reported bool
}

type lossOf struct {
	iteration uint64
	loss      float64
}

type readyOf struct {
	stage int
	readyBody
}

// Run waits for all clients, trains, and returns the result. If the context is cancelled, it finishes the current iteration, for at most ten
// seconds, and returns the context's error with the result so far. Other errors say that a stage was lost or that the loss is not finite, wrap
// train.ErrUsage, or were reported by a client.
func (s *Server) Run(ctx context.Context) (*Result, error) {
	if s.Listener != nil {
		defer func() { _ = s.Listener.Close() }() // it may be closed already
	}
	stages := len(s.Job.Plan.Stages)
	s.timeout = cmp.Or(s.timeout, patience)
	s.run, s.clients = rand.Text(), make([]*client, stages)
	s.arrived, s.losses, s.readies, s.reports = make(chan struct{}, stages), make(chan lossOf, 4), make(chan readyOf, stages), make(chan Measured, stages)
	if err := s.prepare(); err != nil {
		return nil, err
	}
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.cancel = cancel
	defer cancel(nil)
	r := &Result{Losses: []float64{}, Seconds: []float64{}}
	if p := s.Job.Plan.Predicted; p != nil {
		r.Plan = p.Seconds
		if p.Simulated > 0 {
			r.Plan = p.Simulated
		}
	}
	err := s.work(ctx, work, r)
	if err != nil && !errors.Is(err, ctx.Err()) {
		s.end(failBody{Text: err.Error()}, err)
	} else if err != nil {
		s.end(failBody{Text: "the server was interrupted"}, err)
	}
	if s.Listener != nil {
		_ = s.Listener.Close() // nobody may join any more
	}
	cancel(nil)
	s.all.Wait()
	s.closeAll()
	r.Median = median(slices.Clone(r.Seconds[min(1, max(0, len(r.Seconds)-1)):]))
	return r, err
}

// prepare makes the stage, and allocates a batch.
func (s *Server) prepare() error {
	if err := s.Training.validate(); err != nil {
		return err
	}
	var err error
	if s.order, err = train.NewOrder(s.Data.Len(), s.Training.Seed); err != nil {
		return err
	}
	n := s.Job.Plan.GlobalBatch
	s.batch = train.Batch{Inputs: make([]float32, n*s.Job.Network.InputSize()), Targets: make([]int32, n*s.Job.Network.Positions())}
	s.worker, err = newWorker(s.Job, 0, s.Training)
	return err
}

func (s *Server) closeAll() {
	var all sync.WaitGroup
	for _, c := range s.clients {
		if c != nil {
			all.Go(c.control.close)
		}
	}
	if s.next != nil {
		all.Go(s.next.close)
	}
	all.Wait()
}

// work is the run. The context user may be cancelled at any time; work is cancelled when a link ends.
func (s *Server) work(user, work context.Context, r *Result) error {
	stages := len(s.Job.Plan.Stages)
	setup, cancel := context.WithCancelCause(work)
	defer cancel(nil)
	stop := context.AfterFunc(user, func() { cancel(user.Err()) })
	defer stop()
	if stages > 1 {
		s.all.Go(func() { s.accept(work) })
	}
	for range stages - 1 {
		if _, err := await(setup, s.arrived); err != nil {
			return err
		}
	}
	s.welcomeAll()
	if stages > 1 { // the data link of the next stage
		if _, err := await(setup, s.arrived); err != nil {
			return err
		}
	}
	if err := s.predict(setup, r); err != nil {
		return err
	}
	stop()
	defer context.AfterFunc(user, func() { time.AfterFunc(s.timeout, func() { s.cancel(user.Err()) }) })()
	for i := range s.Training.Steps {
		if user.Err() != nil {
			break
		}
		l, err := s.iterate(work, uint64(i), r)
		if err != nil {
			return err
		}
		if math.IsNaN(l) || math.IsInf(l, 0) {
			return fmt.Errorf("%w after %d iterations: choose a smaller --rate", errDiverged, i)
		}
		if s.Each != nil {
			s.Each(i+1, l)
		}
	}
	return errors.Join(s.gather(work, r), user.Err())
}

// await receives from a channel, unless ctx ends first.
func await[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// offer sends to a channel that has room; false: it has none.
func offer[T any](c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	default:
		return false
	}
}

// iterate runs one iteration here, and orders the clients to run it.
func (s *Server) iterate(ctx context.Context, iteration uint64, r *Result) (float64, error) {
	begun := time.Now()
	if err := s.fill(); err != nil {
		return 0, err
	}
	s.begin(iteration)
	l, err := s.worker.iterate(ctx, iteration, s.batch.Inputs, s.batch.Targets)
	if err != nil {
		return 0, err
	}
	if len(s.clients) > 1 {
		got, err := await(ctx, s.losses)
		if err == nil && got.iteration != iteration {
			err = fmt.Errorf("%w: the loss of iteration %d came for %d", errFrame, got.iteration, iteration)
		}
		if err != nil {
			return 0, err
		}
		l = got.loss
	}
	r.Losses, r.Seconds = append(r.Losses, l), append(r.Seconds, time.Since(begun).Seconds())
	return l, nil
}

// begin orders the clients to run an iteration of the batch.
func (s *Server) begin(iteration uint64) {
	for k, c := range s.clients[1:] {
		o := outgoing{frame: frame{kind: begin, iteration: iteration}}
		if k+2 == len(s.clients) {
			o.body = appendWords(nil, s.batch.Targets)
		}
		c.control.send(o)
	}
}

// fill reads the next samples into the batch.
func (s *Server) fill() error {
	width, targets := s.Job.Network.InputSize(), s.Job.Network.Positions()
	for i := range s.Job.Plan.GlobalBatch {
		sample, err := s.order.Next()
		if err != nil {
			return err
		}
		s.Data.Sample(sample, s.batch.Inputs[i*width:][:width], s.batch.Targets[i*targets:][:targets])
	}
	return s.Job.Network.Check(s.batch)
}

// predict measures this stage with the first samples while the others do the same, and simulates an iteration.
func (s *Server) predict(ctx context.Context, r *Result) error {
	stages := len(s.clients)
	taken, send := make([]stageTimes, stages), make([]float64, stages)
	if err := s.fill(); err != nil {
		return err
	}
	s.begin(trial)
	var err error
	if taken[0], _, err = s.worker.measure(ctx, s.batch.Inputs, s.batch.Targets); err != nil {
		return err
	}
	if s.order, err = train.NewOrder(s.Data.Len(), s.Training.Seed); err != nil { // from the first sample again
		return err
	}
	for range stages - 1 {
		got, err := await(ctx, s.readies)
		if err != nil {
			return err
		}
		taken[got.stage], send[got.stage] = got.Taken, got.Send
	}
	r.Predicted, err = predict(taken, send, s.Job.Plan.MicroBatches())
	return err
}

// gather ends the run and collects what the stages measured.
func (s *Server) gather(ctx context.Context, r *Result) error {
	r.Stages = make([]Measured, len(s.clients))
	r.Stages[0] = s.worker.report()
	for _, c := range s.clients[1:] {
		c.control.send(outgoing{frame: frame{kind: finish}})
	}
	for range s.clients[1:] {
		m, err := await(ctx, s.reports)
		if err != nil {
			return err
		}
		r.Stages[m.Stage] = m
	}
	return nil
}

func (s *Server) heard(stage int, f frame, body []byte) error {
	last := stage == len(s.Job.Plan.Stages)-1
	switch {
	case f.kind == ready:
		got := readyOf{stage: stage}
		if err := decode(body, &got.readyBody); err != nil {
			return err
		}
		if offer(s.readies, got) {
			return nil
		}
	case f.kind == loss && last && len(body) == 8:
		if offer(s.losses, lossOf{f.iteration, math.Float64frombits(binary.LittleEndian.Uint64(body))}) {
			return nil
		}
	case f.kind == report:
		m := Measured{}
		if err := decode(body, &m); err != nil {
			return err
		}
		m.Stage = stage
		s.mu.Lock()
		again := s.clients[stage].reported
		s.clients[stage].reported = true
		s.mu.Unlock()
		if !again {
			s.reports <- m // there is room for one report of each stage
			return nil
		}
	case f.kind == fail:
		var b failBody
		if err := decode(body, &b); err != nil {
			return err
		}
		s.end(b, b.error())
		return nil
	}
	return fmt.Errorf("%w: kind %d from stage %d", errFrame, f.kind, stage)
}

// end ends the run for a reason, once, and informs all clients.
func (s *Server) end(b failBody, err error) {
	s.mu.Lock()
	told := s.failed
	s.failed = true
	var clients []*link
	for _, c := range s.clients {
		if c != nil && !c.reported {
			clients = append(clients, c.control)
		}
	}
	s.mu.Unlock()
	if told {
		return
	}
	b.Refused = false
	for _, l := range clients {
		l.tell(fail, b)
	}
	s.cancel(err)
}

func (s *Server) lost(l *link, err error) {
	s.mu.Lock()
	c := s.clients[l.peer]
	over := c != nil && c.reported
	s.mu.Unlock()
	if over {
		return
	}
	text := fmt.Sprintf("%s: %v", l, err)
	s.end(failBody{Text: text, Lost: true}, fmt.Errorf("%w %s", errLost, text))
}

func (s *Server) say(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// accept accepts connections until the listener is closed: the control links of clients, and the data link of the next stage.
func (s *Server) accept(ctx context.Context) {
	room := make(chan struct{}, 2*MaxStages) // limits the handshakes at a time
	for {
		room <- struct{}{}
		conn, err := s.Listener.Accept()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.end(failBody{Text: err.Error()}, err)
			}
			return
		}
		s.all.Go(func() {
			defer func() { <-room }()
			if err := s.admit(ctx, conn); err != nil && ctx.Err() == nil {
				s.say("%v", err)
			}
		})
	}
}

// admit makes the handshake, and takes the connection as a client, as the next stage, or not at all.
func (s *Server) admit(ctx context.Context, conn net.Conn) error {
	l, err := secure(ctx, conn, s.Keys, -1, s.timeout)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // the end of the run must not wait for this connection
	f, body, err := readFrame(l.conn, maxControlBytes, nil)
	if err != nil {
		l.close()
		return fmt.Errorf("%s: %w", l, err)
	}
	var j joinBody
	if f.kind == join && l.peer == 1 && decode(body, &j) == nil && j.Run == s.run {
		s.mu.Lock()
		taken := s.next != nil
		if !taken {
			s.next, s.worker.next = l, l
			l.start(4*s.worker.out.size, s.worker.fromNext, s.lost)
		}
		s.mu.Unlock()
		if !taken {
			s.arrived <- struct{}{}
			return nil
		}
	}
	var h helloBody
	if f.kind != hello || decode(body, &h) != nil {
		l.close()
		return fmt.Errorf("%w: %s does not say who it is", errFrame, l)
	}
	reason := s.refusal(l, h)
	s.mu.Lock()
	if reason == "" && s.clients[l.peer] != nil {
		reason = fmt.Sprintf("stage %d has joined already, from %s", l.peer, s.clients[l.peer].control.conn.RemoteAddr())
	}
	if reason == "" {
		s.clients[l.peer] = &client{control: l, listen: reachable(h.Listen, conn.RemoteAddr())}
		l.start(maxControlBytes, func(f frame, body []byte) error { return s.heard(l.peer, f, body) }, s.lost)
	}
	s.mu.Unlock()
	if reason != "" {
		l.start(maxControlBytes, func(frame, []byte) error { return nil }, func(*link, error) {})
		l.tell(fail, failBody{Text: reason, Refused: true})
		l.close()
		return fmt.Errorf("%s was refused: %s", l, reason)
	}
	s.say("%s has joined", l)
	s.arrived <- struct{}{}
	return nil
}

// refusal says why a client cannot take part; "" if it can.
func (s *Server) refusal(l *link, h helloBody) string {
	switch {
	case h.Protocol != protocol:
		return fmt.Sprintf("it speaks version %d of the protocol, the server version %d: use the same program", h.Protocol, protocol)
	case h.Stage != l.peer:
		return fmt.Sprintf("it says that it is stage %d and shows the certificate of stage %d", h.Stage, l.peer)
	case h.Stage < 1 || h.Stage >= len(s.clients):
		return fmt.Sprintf("stage %d is not one of the plan's clients, 1 to %d", h.Stage, len(s.clients)-1)
	case h.Plan != s.Job.planHash():
		return fmt.Sprintf("it has another plan (hash %s, the server %s): give all stages the same file", short(h.Plan), short(s.Job.planHash()))
	case h.Network != s.Job.Network.Hash():
		return fmt.Sprintf("it has another model (hash %s, the server %s): give all stages the same data and sizes", short(h.Network), short(s.Job.Network.Hash()))
	case h.Stage < len(s.clients)-1 && h.Listen == "":
		return "it does not say where the next stage finds it"
	}
	return ""
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

// reachable is the address at which other stages reach a client. If the client listens on all addresses, it is the one from which it connected.
func reachable(listen string, from net.Addr) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if h, _, err := net.SplitHostPort(from.String()); err == nil {
			host = h
		}
	}
	return net.JoinHostPort(host, port)
}

// welcomeAll tells the clients how to train, and where the previous stage is.
func (s *Server) welcomeAll() {
	previous := ""
	for _, c := range s.clients {
		if c == nil {
			continue
		}
		c.control.tell(welcome, welcomeBody{s.run, s.Training, previous})
		previous = c.listen
	}
}
