package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/train"
)

func TestSmall(t *testing.T) {
	r, err := run(t.Context(), config{Layers: 3, Width: 64, Batch: 8, LinkBytesPerSecond: 50e6, Trials: 2, Steps: 2}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := figure(r.all[3].spans, r.all[4].spans).Save(filepath.Join(t.TempDir(), "pipeline.svg")); err != nil {
		t.Error(err)
	}
	if len(r.layers) != 3 || r.layers[0].Layer != "dense3" || !strings.Contains(r.tables(), "| dense1 |") {
		t.Errorf("layers %+v", r.layers)
	}
	for _, l := range r.layers { // a gigabyte in 50 seconds; the link is never faster
		if l.ExchangeSeconds < 64*10*4/50e6 || l.SaveSeconds <= 0 || l.ExchangeHidden < 0 || l.ExchangeHidden > 1 || l.SaveHidden > 1 {
			t.Errorf("%+v", l)
		}
	}
	var with []float64
	for _, v := range r.all {
		with = append(with, v.seconds[0])
	}
	if with[1] < 2*64*64*4/50e6 {
		t.Errorf("steps %v: faster than the links", with)
	}
}

func TestCovered(t *testing.T) {
	span := func(a, b int) train.Span { return train.Span{Begin: time.Duration(a), End: time.Duration(b)} }
	others := []train.Span{span(0, 10), span(20, 30), span(40, 50)}
	for _, c := range []struct{ a, b, want int }{{0, 10, 10}, {5, 25, 10}, {10, 20, 0}, {5, 45, 20}, {60, 70, 0}, {22, 23, 1}} {
		if got := covered(span(c.a, c.b), others); got != time.Duration(c.want) {
			t.Errorf("%d to %d: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
