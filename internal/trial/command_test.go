package trial

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestCommand(t *testing.T) {
	run := func(script string) (Result, error) {
		return Command{Args: []string{"sh", "-c", script}, Limit: time.Second}.Run(context.Background(), 512, 16)
	}
	r, err := run(`echo begun; echo '{"seconds":0.5,"peak_bytes":{length}}'`)
	if err != nil || r.Seconds != 0.5 || r.PeakBytes != 512 {
		t.Errorf("got %+v, %v", r, err)
	}
	r, err = run(`: {batch}`)
	if err != nil || r.Seconds <= 0 {
		t.Errorf("wall time: got %+v, %v", r, err)
	}
	for _, script := range []string{"exit 42", "kill -9 $$", "echo 'CUDA out of memory' >&2; exit 1", `echo '{"out_of_memory":true}'`} {
		if r, err := run(script); err != nil || !r.OutOfMemory {
			t.Errorf("%s: got %+v, %v", script, r, err)
		}
	}
	if r, err := run("exit 3"); err == nil || r.OutOfMemory {
		t.Error("another status must be an error")
	}
	if _, err := (Command{Args: []string{"sh", "-c", "sleep 20 & wait"}, Limit: 50 * time.Millisecond}).Run(context.Background(), 1, 1); !errors.Is(err, errLimit) {
		t.Errorf("over the limit: got %v", err)
	}
}
