package wire

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A rank's token sends that rank's messages, and nothing else.
func TestRankTokens(t *testing.T) {
	s, w := serve(t), newWorld(t, 10)
	if err := Create(t.Context(), connect(t, s), "r", w.header); err != nil {
		t.Fatal(err)
	}
	if c, err := Connect(s.URL(), Options{Rank: 1, Token: RankToken(s.Token(), 0)}); err == nil {
		c.Close()
		t.Error("another rank's token was let in")
	}
	p := w.join(s, "r", 1)
	b := p.Bus.(*Bus)
	if err := b.Publish(t.Context(), make([]byte, 16)); err != nil {
		t.Errorf("its own frame: %v", err)
	}
	if err := b.PublishBlock(t.Context(), 0, []byte{1}); err != nil {
		t.Errorf("its own block: %v", err)
	}
	nc := b.run.js.Conn()
	for _, forbidden := range []string{
		subject("r", frameSubject, 0), subject("r", blockSubject, 0, 2), subject("r", resultSubject, 3), subject("r", headerSubject), subject("r", "else"),
		"$JS.API.STREAM.DELETE." + stream("r"), "$JS.API.STREAM.PURGE." + stream("r"), "$JS.API.STREAM.UPDATE." + stream("r"), "$JS.API.STREAM.MSG.DELETE." + stream("r"), "$JS.API.STREAM.CREATE.other",
	} {
		if m, err := nc.Request(forbidden, []byte{1}, 200*time.Millisecond); err == nil {
			t.Errorf("%s: answered %s", forbidden, m.Data)
		}
	}
	info, err := b.run.stream.Info(t.Context())
	if err != nil || info.State.Msgs != 3 {
		t.Errorf("%d messages in the stream, want header, frame and block: %v", info.State.Msgs, err)
	}
}

func TestRefusals(t *testing.T) {
	s := serve(t)
	if c, err := Connect(s.URL(), Options{Rank: -1, Token: "wrong"}); err == nil {
		c.Close()
		t.Error("a wrong token was let in")
	}
	c := connect(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := Open(ctx, c, "nothing"); !errors.Is(err, ErrNoRun) {
		t.Errorf("%v", err)
	}
	if _, err := Open(ctx, c, "no name!"); !errors.Is(err, ErrName) {
		t.Errorf("%v", err)
	}
	if err := Create(ctx, c, strings.Repeat("x", 65), nil); !errors.Is(err, ErrName) {
		t.Errorf("%v", err)
	}
	for _, o := range []ServerOptions{{Addr: "0.0.0.0:0"}, {Addr: "0.0.0.0:0", Token: "secret"}, {Addr: "example.org:1"}} {
		if s, err := Serve(o); !errors.Is(err, ErrOpen) {
			t.Errorf("%+v: %v", o, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	for url, want := range map[string]error{"nats://10.0.0.1:4222": ErrOpen, "nats://example.org:4222": ErrOpen, "nothing": ErrURL, "": ErrURL} {
		if _, err := Connect(url, Options{}); !errors.Is(err, want) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := Serve(ServerOptions{Addr: "127.0.0.1"}); err == nil {
		t.Error("an address without a port was taken")
	}
}

// Who reads where frames are gone gets an error; header and blocks stay.
func TestGap(t *testing.T) {
	s, w := serve(t), newWorld(t, 10)
	owner := connect(t, s)
	if err := Create(t.Context(), owner, "r", w.header); err != nil {
		t.Fatal(err)
	}
	run, err := Open(t.Context(), owner, "r")
	if err != nil {
		t.Fatal(err)
	}
	if err := run.publish(t.Context(), subject("r", blockSubject, 0, 0), []byte("a block")); err != nil {
		t.Fatal(err)
	}
	for range keptMessages + 2 {
		if err := owner.Publish(subject("r", frameSubject, 3), make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	for last := (jetstream.StreamState{}); last.LastSeq < keptMessages+4; { // the server stores them after it has them
		info, err := run.stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = info.State
	}
	for after, want := range map[uint64]error{0: ErrGap, 3: ErrGap, 4: nil} {
		bus, err := run.Join(t.Context(), 0, after)
		if err != nil {
			t.Fatal(err)
		}
		m, err := bus.Next(t.Context())
		if after == 0 && err == nil { // the block is there still
			m, err = bus.Next(t.Context())
		}
		if !errors.Is(err, want) || want == nil && (m.Position != after+1 || m.Rank != 3) {
			t.Errorf("after %d: %+v, %v; want %v", after, m, err, want)
		}
		bus.Close()
	}
	if blocks, err := run.Blocks(t.Context()); err != nil || len(blocks) != 1 || blocks[0].Position != 2 || string(blocks[0].Data) != "a block" {
		t.Errorf("blocks %v, %v", blocks, err)
	}
}
