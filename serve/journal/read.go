package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Read reads a job's messages behind the one of number after, the oldest first, up to the newest, and returns that one's number, after if there is none. An error of each ends it.
func (j *Journal) Read(ctx context.Context, job string, after uint64, each func(message []byte) error) (uint64, error) {
	for {
		m, err := j.get(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return j.stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(subject(job)))
		})
		if m == nil || err != nil {
			return after, err
		}
		if err := each(m.Data); err != nil {
			return 0, fmt.Errorf("journal: message %d: %w", m.Sequence, err)
		}
		after = m.Sequence
	}
}

// get asks for a message, nil if there is none. If the answer is lost with a server, it asks again only as long as a report may wait.
func (j *Journal) get(ctx context.Context, ask func(context.Context) (*jetstream.RawStreamMsg, error)) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, j.answer())
	defer cancel()
	m, err := j.repeat(ctx, ask)
	j.heard(err == nil || errors.Is(err, jetstream.ErrMsgNotFound))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil //nolint:nilnil // no message is no error
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return m, nil
}

// repeat asks servers elsewhere at intervals until one question is answered. A question that is lost with a leader would otherwise hold up a job for a second
// after the next leader is elected.
func (j *Journal) repeat(ctx context.Context, ask func(context.Context) (*jetstream.RawStreamMsg, error)) (*jetstream.RawStreamMsg, error) {
	if !j.Shared() {
		return ask(ctx)
	}
	type reply struct {
		m   *jetstream.RawStreamMsg
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	replies := make(chan reply, int(answer/again)+1)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	tick := time.NewTicker(again)
	defer tick.Stop()
	for asked := 0; ; {
		if asked < cap(replies) {
			asked++
			all.Go(func() {
				m, err := ask(ctx)
				replies <- reply{m, err}
			})
		}
		select {
		case r := <-replies:
			return r.m, r.err
		case <-tick.C:
		}
	}
}

const (
	silent = 2               // questions without an answer, one after another, until another server is tried
	stay   = 3 * time.Second // with a server at least: the others may have to agree on a leader
)

// heard notes whether a server answered. A server that is cut off from the others still answers pings, so its connection holds: after some questions without
// an answer the client turns to another server.
func (j *Journal) heard(answered bool) {
	if answered {
		j.unanswered.Store(0)
		return
	}
	if j.unanswered.Add(1) < silent || !j.Shared() {
		return
	}
	last, now := j.turned.Load(), time.Now().UnixNano()
	if now-last > int64(stay) && j.turned.CompareAndSwap(last, now) && len(j.conn.Servers()) > 1 {
		j.unanswered.Store(0)
		_ = j.conn.ForceReconnect() // it is closed, or tries already
	}
}
