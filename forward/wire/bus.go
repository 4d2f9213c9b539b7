package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"evenkeel/forward"
)

// Run is a run on a server.
type Run struct {
	Header []byte

	name   string
	js     jetstream.JetStream
	stream jetstream.Stream
	// refusedFor is how long a reachable server may be late with answers, or refuse messages.
	refusedFor time.Duration
}

// Open opens a run.
func Open(ctx context.Context, c *nats.Conn, name string) (*Run, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	r := &Run{name: name, js: js, refusedFor: refusedFor}
	if r.stream, err = js.Stream(ctx, stream(name)); errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, name)
	}
	if err != nil {
		return nil, fmt.Errorf("wire: open run %s: %w", name, err)
	}
	first, err := r.stream.GetMsg(ctx, 1)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: %s has no header, since its creator was interrupted; create it again", ErrNoRun, name)
	}
	if err != nil {
		return nil, fmt.Errorf("wire: header of run %s: %w", name, err)
	}
	r.Header = first.Data
	return r, nil
}

// Block is a block in a run's stream.
type Block struct {
	Position uint64 // of its message
	Data     []byte
}

// Blocks returns the run's blocks so far. Some may be damaged or repeated: skip those that do not follow (Chain.Follows).
func (r *Run) Blocks(ctx context.Context) (blocks []Block, err error) {
	err = r.readAll(ctx, subject(r.name, blockSubject, ">"), func(m jetstream.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		blocks = append(blocks, Block{meta.Sequence.Stream, m.Data()})
		return nil
	})
	return blocks, err
}

// Results returns, by rank, the results that processors sent when they ended.
func (r *Run) Results(ctx context.Context) (map[int][]byte, error) {
	results := map[int][]byte{}
	err := r.readAll(ctx, subject(r.name, resultSubject, "*"), func(m jetstream.Msg) error {
		if rank, ok := rankOf(m.Subject()); ok {
			results[rank] = m.Data()
		}
		return nil
	})
	return results, err
}

// Stop asks the run's processors to end it with the present block. It is sent in the name of rank 0, so it needs the token of
// that rank, or the token that creates runs.
func (r *Run) Stop(ctx context.Context) error {
	return r.publish(ctx, subject(r.name, frameSubject, 0), forward.Frame{Stop: true}.Encode(nil))
}

// Size returns a run's bytes on the server, and when its last message came; nil: never.
func (r *Run) Size(ctx context.Context) (bytes uint64, last *time.Time, err error) {
	info, err := r.stream.Info(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("wire: read run %s: %w", r.name, err)
	}
	if info.State.Msgs > 0 {
		last = &info.State.LastTime
	}
	return info.State.Bytes, last, nil
}

// rankOf returns the rank in the last part of a subject.
func rankOf(subject string) (int, bool) {
	rank, err := strconv.Atoi(subject[strings.LastIndexByte(subject, '.')+1:])
	return rank, err == nil && rank >= 0
}

// readAll calls each with the messages that the stream has now on the filter's subjects.
func (r *Run) readAll(ctx context.Context, filter string, each func(jetstream.Msg) error) error {
	info, err := r.stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return fmt.Errorf("wire: read run %s: %w", r.name, err)
	}
	left := uint64(0)
	for _, n := range info.State.Subjects {
		left += n
	}
	if left == 0 {
		return nil
	}
	messages, err := r.consume(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return fmt.Errorf("wire: read run %s: %w", r.name, err)
	}
	defer messages.Stop()
	for ; left > 0; left-- {
		waiting, cancel := context.WithTimeout(ctx, r.refusedFor)
		m, err := messages.Next(jetstream.NextContext(waiting))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return fmt.Errorf("wire: read run %s: the server has more messages but has sent none for %v: %w", r.name, r.refusedFor, err)
		}
		if err != nil {
			return fmt.Errorf("wire: read run %s: %w", r.name, err)
		}
		if err := each(m); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) consume(ctx context.Context, c jetstream.OrderedConsumerConfig) (jetstream.MessagesContext, error) {
	consumer, err := r.stream.OrderedConsumer(ctx, c)
	if err != nil {
		return nil, err
	}
	return consumer.Messages(jetstream.PullExpiry(pullFor), jetstream.PullMaxMessages(1024))
}

// pullFor is how long a request for messages lasts; the server sends heartbeats at half of it.
const pullFor = 4 * time.Second

// Bus connects a processor with a run. Close it when the run is over.
type Bus struct {
	run      *Run
	rank     int
	filter   string // of subjects; empty: all
	messages chan message
	pending  uint64 // messages after the last one, when that was sent
	since    atomic.Int64
	stop     func()
	pumping  sync.WaitGroup
}

type message struct {
	forward.Message
	pending uint64
	err     error
}

var _ forward.Bus = (*Bus)(nil)

// Join takes part in the run as a rank; after is the position of the last message that the rank knows.
func (r *Run) Join(ctx context.Context, rank int, after uint64) (*Bus, error) {
	return r.follow(ctx, &Bus{run: r, rank: rank}, after)
}

// Follow reads the run's blocks alone, for a program that takes no part.
func (r *Run) Follow(ctx context.Context, after uint64) (*Bus, error) {
	return r.follow(ctx, &Bus{run: r, filter: subject(r.name, blockSubject, ">")}, after)
}

func (r *Run) follow(ctx context.Context, b *Bus, after uint64) (*Bus, error) {
	after = max(after, 1) // the header's
	info, err := r.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("wire: join run %s: %w", r.name, err)
	}
	pumping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.messages, b.stop = make(chan message, 1024), cancel
	b.pending = info.State.LastSeq - min(after, info.State.LastSeq)
	b.pumping.Go(func() { b.pump(pumping, after) })
	return b, nil
}

// pump passes messages on, from one consumer after the other, until ctx ends or the server stays away.
func (b *Bus) pump(ctx context.Context, position uint64) {
	lost := time.Now()
	for ctx.Err() == nil {
		before := position
		err := b.read(ctx, &position)
		if position > before {
			lost = time.Now()
		}
		final := errors.Is(err, ErrGap) || errors.Is(err, ErrLost) || errors.Is(err, jetstream.ErrStreamNotFound)
		if final || time.Since(lost) > reconnectFor || b.run.js.Conn().IsClosed() {
			b.hand(ctx, message{err: err})
			return
		}
		select {
		case <-time.After(reconnectWait):
		case <-ctx.Done():
		}
	}
}

// hand passes one message on.
func (b *Bus) hand(ctx context.Context, m message) bool {
	select {
	case b.messages <- m:
		return true
	case <-ctx.Done():
		return false
	}
}

// read passes on messages from a consumer of its own, until that fails.
func (b *Bus) read(ctx context.Context, position *uint64) error {
	asking, cancel := context.WithTimeout(ctx, pullFor)
	info, err := b.run.stream.Info(asking)
	cancel()
	if err != nil {
		return err
	}
	if info.State.LastSeq < *position {
		return fmt.Errorf("%w: it ends at message %d, %d were read", ErrLost, info.State.LastSeq, *position)
	}
	asking, cancel = context.WithTimeout(ctx, pullFor)
	defer cancel()
	options := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *position + 1, MaxResetAttempts: 1}
	if b.filter != "" {
		options.FilterSubjects = []string{b.filter}
	}
	from, err := b.run.consume(asking, options)
	if err != nil {
		return err
	}
	defer from.Stop()
	b.since.Store(time.Now().UnixNano())
	back := b.run.js.Conn().StatusChanged(nats.CONNECTED)
	defer b.run.js.Conn().RemoveStatusListener(back)
	// from.Stop will not do: it has no effect while the client renews the consumer.
	reading, stop := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop() // before the wait
	waiting.Go(func() {
		select {
		case <-back: // a restarted server does not know the consumer
			stop()
		case <-reading.Done():
		}
	})
	for {
		m, err := from.Next(jetstream.NextContext(reading))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if b.filter == "" && meta.Sequence.Stream != *position+1 {
			return ErrGap
		}
		*position = meta.Sequence.Stream
		next := message{Message: forward.Message{Position: *position}, pending: meta.NumPending}
		if rank, ok := rankOf(m.Subject()); ok {
			next.Rank = rank
			switch what := strings.Split(strings.TrimPrefix(m.Subject(), subject(b.run.name)+"."), "."); {
			case what[0] == frameSubject && len(what) == 2:
				next.Frame = m.Data()
			case what[0] == blockSubject && len(what) == 3:
				next.Block = m.Data()
			}
		}
		if !b.hand(ctx, next) {
			return ctx.Err()
		}
	}
}

// refusedFor is Run.refusedFor, unless a test shortens it.
const refusedFor = 20 * time.Second

// Publish sends a frame and waits until the stream has it.
func (b *Bus) Publish(ctx context.Context, frame []byte) error {
	return b.run.publish(ctx, subject(b.run.name, frameSubject, b.rank), frame)
}

// PublishBlock sends a block.
func (b *Bus) PublishBlock(ctx context.Context, number int, block []byte) error {
	return b.run.publish(ctx, subject(b.run.name, blockSubject, number, b.rank), block)
}

// Result publishes how the run ended for this processor.
func (b *Bus) Result(ctx context.Context, result []byte) error {
	return b.run.publish(ctx, subject(b.run.name, resultSubject, b.rank), result)
}

// publish tries again while the connection is lost: a frame that arrives twice counts once.
func (r *Run) publish(ctx context.Context, subject string, data []byte) error {
	begun, refusing := time.Now(), time.Now() // refusing: since when a connected server has not stored the message
	for {
		asking, cancel := context.WithTimeout(ctx, pullFor)
		_, err := r.js.Publish(asking, subject, data)
		cancel()
		var api *jetstream.APIError
		refused := errors.As(err, &api) && api.Code == 400 // other codes: no server at the moment
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || refused || r.js.Conn().IsClosed() || time.Since(begun) > reconnectFor:
			return fmt.Errorf("wire: publish %s: %w", subject, err)
		case !r.js.Conn().IsConnected():
			refusing = time.Now()
		case time.Since(refusing) > r.refusedFor:
			return fmt.Errorf("wire: publish %s: the server is connected but has not stored the message for %v; is its disk full? %w", subject, r.refusedFor, err)
		}
		select {
		case <-time.After(reconnectWait):
		case <-ctx.Done():
		}
	}
}

// Next implements forward.Bus.
func (b *Bus) Next(ctx context.Context) (forward.Message, error) {
	select {
	case m := <-b.messages:
		if m.err != nil {
			return m.Message, fmt.Errorf("wire: %w", m.err)
		}
		b.pending = m.pending
		return m.Message, nil
	case <-ctx.Done():
		return forward.Message{}, ctx.Err()
	}
}

// Since implements forward.Bus.
func (b *Bus) Since() time.Time {
	if !b.run.js.Conn().IsConnected() {
		return time.Now()
	}
	return time.Unix(0, b.since.Load())
}

// Behind implements forward.Bus.
func (b *Bus) Behind() bool { return len(b.messages) > 0 || b.pending > 0 }

// Close leaves the run.
func (b *Bus) Close() {
	b.stop()
	b.pumping.Wait()
}
