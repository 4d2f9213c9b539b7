package main

import (
	"math"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/planner/execute"
)

// The fit finds a line, whatever the other sizes say.
func TestFit(t *testing.T) {
	var times []timed
	for _, n := range calibrated {
		times = append(times, timed{n, 1e-5 + 2e-10*float64(n), 3e-5 + 5e-10*float64(n)})
	}
	times = append(times, timed{scored[0], 1, 2})
	m := fit(times)
	if got := m.added(); math.Abs(got.message-2e-5) > 1e-10 || math.Abs(got.byte-3e-10) > 1e-16 {
		t.Errorf("%+v", got)
	}
}

// Both kinds of links carry both kinds of runs.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	if err := execute.MakeKeys(dir, 2, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	l, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- work(l.address(), dir) }()
	runs := []twoStages{
		{bytes: 1000, iterations: 3, forward: time.Millisecond},
		{bytes: 1000, microBatches: 3, iterations: 3, forward: time.Millisecond, backward: 2 * time.Millisecond},
	}
	all, err := l.compare(runs...)
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range runs {
		for _, m := range all[k] {
			if m.forward < 1e-3 || p.microBatches > 0 && (m.backward < 2e-3 || m.seconds < 9e-3) || m.others <= 0 {
				t.Errorf("%+v", all[k])
			}
		}
	}
	if s, err := l.handshakes(); err != nil || s <= 0 {
		t.Error(s, err)
	}
	l.close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
