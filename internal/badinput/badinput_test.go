package badinput

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestIs(t *testing.T) {
	errA, errB := New("room: text"), New("room: text")
	if errors.Is(errA, errB) {
		t.Error("two sentinels with one text are the same")
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {io.EOF, false}, {errA, true},
		{fmt.Errorf("file: line 3: %w", errA), true},
		{errors.Join(io.EOF, fmt.Errorf("twice: %w", errA)), true},
		{fmt.Errorf("cause lost: %v", errA), false},
		{Wrap(io.EOF), true}, {Wrap(nil), false}, {Errorf("line %d", 3), true},
	} {
		if got := Is(c.err); got != c.want {
			t.Errorf("Is(%v) = %v", c.err, got)
		}
	}
	if err := fmt.Errorf("x: %w", errA); !errors.Is(err, errA) || err.Error() != "x: room: text" {
		t.Errorf("wrapped: %v", err)
	}
	if err := Errorf("line %d: %w", 3, io.EOF); err.Error() != "line 3: EOF" || !errors.Is(err, io.EOF) {
		t.Errorf("formatted: %v", err)
	}
	if !errors.Is(Wrap(io.EOF), io.EOF) {
		t.Error("Wrap hides the error")
	}
}
