package subprocess

import (
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	var tail Tail
	if tail.LastLine() != "" {
		t.Errorf("%q", tail.LastLine())
	}
	for range 3 {
		if n, err := tail.Write([]byte(strings.Repeat("x", mostOutput-1) + "\n")); n != mostOutput || err != nil {
			t.Error(n, err)
		}
	}
	_, _ = tail.Write([]byte("the end\r\n\n"))
	if len(tail.String()) != mostOutput || tail.LastLine() != "the end" {
		t.Errorf("%d bytes, last %q", len(tail.String()), tail.LastLine())
	}
}
