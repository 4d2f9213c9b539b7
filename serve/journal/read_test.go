package journal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A question that a server took with it is asked again, and the first answer counts; nothing of the others is left when it returns.
func TestAskedAgain(t *testing.T) {
	j := &Journal{} // of servers elsewhere
	var asked, ended atomic.Int32
	begun := time.Now()
	soon, over := context.WithTimeout(t.Context(), 4*answer)
	defer over()
	m, err := j.repeat(soon, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		defer ended.Add(1)
		if asked.Add(1) == 3 {
			return &jetstream.RawStreamMsg{Sequence: 7}, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if took := time.Since(begun); err != nil || m.Sequence != 7 || took < 2*again || took > answer {
		t.Errorf("%v, %v after %v", m, err, took)
	}
	if asked.Load() != 3 || ended.Load() != 3 {
		t.Errorf("asked %d times, %d of them over", asked.Load(), ended.Load())
	}
	// Nobody answers: as often as there is time for, and no longer.
	ctx, cancel := context.WithTimeout(t.Context(), answer)
	defer cancel()
	asked.Store(0)
	if _, err := j.repeat(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		asked.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}); !errors.Is(err, context.DeadlineExceeded) || asked.Load() < 4 || asked.Load() > int32(answer/again)+1 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
	// An answer that comes at once is the only one asked for, an error, too.
	asked.Store(0)
	broken := errors.New("broken")
	if _, err := j.repeat(t.Context(), func(context.Context) (*jetstream.RawStreamMsg, error) {
		asked.Add(1)
		return nil, broken
	}); !errors.Is(err, broken) || asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, asked.Load())
	}
}

// Folders are made with those above them; a file in the way is an error, and one that is there is no work.
func TestMakeFolder(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, dir + "/a/b/c", dir + "/a/b/c", dir + "/a/d"} {
		if err := makeFolder(path); err != nil {
			t.Error(err)
		}
	}
	if err := flushFolders(dir); err != nil {
		t.Error(err)
	}
	if err := flushFolders(dir + "/none"); err == nil {
		t.Error("a folder that is not there is flushed")
	}
}
