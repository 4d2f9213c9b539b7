// Package subprocess keeps the end of a program's output, whose last line reports a failure,
// as that of the evenkeel program itself does.
package subprocess

import "strings"

// mostOutput is how much of a program's output is kept: its end.
const mostOutput = 64 << 10

// Tail keeps the end of what is written to it.
type Tail struct{ text []byte }

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	if n := len(t.text) - mostOutput; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(b), nil
}

func (t *Tail) String() string { return string(t.text) }

// LastLine is the last line that is not empty.
func (t *Tail) LastLine() string {
	s := strings.TrimSpace(string(t.text))
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
