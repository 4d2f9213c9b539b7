package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/evenkeel/evenkeel/forward"
)

// The subjects of a run's stream, beside the header's.
const (
	frameSubject    = "frames"
	snapshotSubject = "marks" // their name in version 1 of the streams
	doneSubject     = "done"
)

// Run is a run that was joined.
type Run struct {
	Header    []byte
	Snapshots [][]byte // so far
	Bus       *Bus     // the frames after the last snapshot, or all
}

// Bus is a run's frames. Close it when the run is over.
type Bus struct {
	js        jetstream.JetStream
	stream    jetstream.Stream
	name      string
	frames    chan message
	last      message
	snapshots []uint64 // positions of the snapshots that this processor made
	stop      func()
	pumping   sync.WaitGroup
}

type message struct {
	data     []byte
	position uint64 // in the stream
	pending  uint64 // behind it, when it was sent
	err      error
}

var _ forward.Bus = (*Bus)(nil)

// Join joins a run.
func Join(ctx context.Context, c *nats.Conn, name string) (*Run, error) {
	if !names.MatchString(name) {
		return nil, fmt.Errorf("%w: %q", ErrName, name)
	}
	js, err := jetstream.New(c)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	s, err := js.Stream(ctx, stream(name))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrNoRun, name)
	}
	if err != nil {
		return nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	first, err := s.GetMsg(ctx, 1)
	if err != nil {
		return nil, fmt.Errorf("wire: header of run %s: %w", name, err)
	}
	snapshots, after, err := readSnapshots(ctx, s, name)
	if err != nil {
		return nil, fmt.Errorf("wire: snapshots of run %s: %w", name, err)
	}
	r := &Run{Header: first.Data, Snapshots: snapshots}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1})
	if err != nil {
		return nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("wire: join run %s: %w", name, err)
	}
	r.Bus = &Bus{js: js, stream: s, name: name, frames: make(chan message, 1024), last: message{position: after, pending: info.State.LastSeq - min(after, info.State.LastSeq)}}
	done := make(chan struct{})
	r.Bus.stop = sync.OnceFunc(func() { close(done); messages.Stop() })
	r.Bus.pumping.Go(func() { r.Bus.pump(messages, after, done) })
	return r, nil
}

// placed puts the position of the frame that a snapshot follows before it.
func placed(position uint64, snapshot []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, position), snapshot...)
}

// readSnapshots reads all snapshots, and the position of the last frame that they stand for; 1 is the header's.
func readSnapshots(ctx context.Context, s jetstream.Stream, name string) (snapshots [][]byte, after uint64, err error) {
	after = 1
	err = readAll(ctx, s, subject(name, snapshotSubject), func(b []byte) error {
		if len(b) < 8 {
			return forward.ErrSnapshot
		}
		snapshots, after = append(snapshots, b[8:]), binary.LittleEndian.Uint64(b)
		return nil
	})
	return snapshots, after, err
}

// readAll hands on what a subject has now.
func readAll(ctx context.Context, s jetstream.Stream, subject string, each func([]byte) error) error {
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil || info.State.Subjects[subject] == 0 {
		return err
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for range info.State.Subjects[subject] {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		if err := each(m.Data()); err != nil {
			return err
		}
	}
	return nil
}

// pump hands frames on until the consumer is stopped. Snapshots pass by it only so that a gap shows.
func (b *Bus) pump(from jetstream.MessagesContext, position uint64, done <-chan struct{}) {
	for {
		m, err := from.Next()
		next := message{err: err}
		if err == nil {
			meta, err := m.Metadata()
			if err == nil {
				if next.pending = meta.NumPending; meta.Sequence.Stream != position+1 {
					err = ErrGap
				}
				position = meta.Sequence.Stream
			}
			next.data, next.position, next.err = m.Data(), position, err
			if err == nil && m.Subject() != subject(b.name, frameSubject) {
				next.data = nil
			}
		}
		select {
		case b.frames <- next:
		case <-done:
			return
		}
		if next.err != nil {
			return
		}
	}
}

// Publish sends a frame and waits until the stream has it.
func (b *Bus) Publish(ctx context.Context, frame []byte) error {
	return b.publish(ctx, frameSubject, frame)
}

// publish tries again while the connection is away: a frame that arrives twice counts once.
func (b *Bus) publish(ctx context.Context, what string, data []byte) error {
	for begun := time.Now(); ; {
		_, err := b.js.Publish(ctx, subject(b.name, what), data)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || b.js.Conn().IsClosed() || time.Since(begun) > reconnectFor:
			return fmt.Errorf("wire: publish: %w", err)
		}
		select {
		case <-time.After(reconnectWait):
		case <-ctx.Done():
		}
	}
}

// keptSnapshots is how many snapshots' frames stay, for those who are reading them.
const keptSnapshots = 16

// PublishSnapshot publishes a snapshot that stands from now on for the frames that Next gave so far. Frames of much earlier ones are deleted.
func (b *Bus) PublishSnapshot(ctx context.Context, snapshot []byte) error {
	if err := b.publish(ctx, snapshotSubject, placed(b.last.position, snapshot)); err != nil {
		return err
	}
	b.snapshots = append(b.snapshots, b.last.position)
	if len(b.snapshots) < 2*keptSnapshots {
		return nil
	}
	if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject(b.name, frameSubject)), jetstream.WithPurgeSequence(b.snapshots[keptSnapshots-1]+1)); err != nil {
		return fmt.Errorf("wire: delete frames: %w", err)
	}
	b.snapshots = append([]uint64(nil), b.snapshots[keptSnapshots:]...)
	return nil
}

// Done publishes this processor's result to those who follow the run.
func (b *Bus) Done(ctx context.Context, result []byte) error {
	return b.publish(ctx, doneSubject, result)
}

// Results are what processors published by Done so far.
func (b *Bus) Results(ctx context.Context) (results [][]byte, err error) {
	err = readAll(ctx, b.stream, subject(b.name, doneSubject), func(r []byte) error {
		results = append(results, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("wire: results of run %s: %w", b.name, err)
	}
	return results, nil
}

// Next is forward.Bus's.
func (b *Bus) Next(ctx context.Context) ([]byte, error) {
	select {
	case m := <-b.frames:
		if m.err != nil {
			return nil, fmt.Errorf("wire: %w", m.err)
		}
		b.last = m
		return m.data, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Behind is forward.Bus's.
func (b *Bus) Behind() bool { return len(b.frames) > 0 || b.last.pending > 0 }

// Close leaves the run.
func (b *Bus) Close() {
	b.stop()
	b.pumping.Wait()
}
