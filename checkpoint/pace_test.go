package checkpoint

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A save takes half of the time for which the one before was left alone, by the clock; who waits ends that, whichever way.
func TestPace(t *testing.T) {
	for _, c := range []struct {
		name     string
		disturb  func(f *File, s *Save)
		least    time.Duration
		most     time.Duration
		mode     Mode
		whenFull WhenFull
	}{
		{name: "left alone", disturb: func(*File, *Save) {}, least: 4900 * time.Millisecond, most: 5100 * time.Millisecond},
		{name: "staged", disturb: func(*File, *Save) {}, least: 4900 * time.Millisecond, most: 5100 * time.Millisecond, mode: Staged},
		{name: "an array is wanted", disturb: func(f *File, _ *Save) { f.Ready("b") }, least: time.Second, most: 1100 * time.Millisecond},
		{name: "it is waited for", disturb: func(_ *File, s *Save) { _ = s.Wait(context.Background()) }, least: time.Second, most: 1100 * time.Millisecond},
		{name: "a slot is wanted", disturb: func(f *File, _ *Save) {
			for range 2 { // the second has no slot
				s, _ := f.Begin(context.Background(), 9)
				s.Abort()
			}
		}, least: time.Second, most: 1100 * time.Millisecond, whenFull: Block},
		{name: "who does not wait any more", disturb: func(_ *File, s *Save) {
			ctx, cancel := context.WithTimeout(context.Background(), 0)
			defer cancel()
			_ = s.Wait(ctx)
		}, least: 4900 * time.Millisecond, most: 5100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrays := []Array{Of("a", Parameter, make([]float32, 2<<20)), Of("b", Parameter, make([]float32, 2<<20))}
				f, err := CreateOn(NewMemory(nil), arrays, Options{Slots: 2, Mode: c.mode, WhenFull: c.whenFull})
				if err != nil {
					t.Fatal(err)
				}
				save := func(step uint64) *Save {
					s, err := f.Begin(context.Background(), step)
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range arrays {
						f.Ready(a.Name)
						a.Data[0]++
						if err := s.Write(a.Name, a.Data); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.Commit(State{}); err != nil {
						t.Fatal(err)
					}
					return s
				}
				begun := time.Now()
				<-save(1).Done()
				if d := time.Since(begun); d != 0 {
					t.Errorf("the first save took %v, and nothing is known of the time that it has", d)
				}
				time.Sleep(10 * time.Second)
				begun = time.Now()
				s := save(2)
				time.Sleep(time.Second)
				c.disturb(f, s)
				<-s.Done()
				if d := time.Since(begun); d < c.least || d > c.most {
					t.Errorf("it took %v, want %v to %v", d, c.least, c.most)
				}
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A file is closed at once, though a save is spread over a minute.
func TestCloseHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Of("a", Parameter, make([]float32, 4<<20))
		f, err := CreateOn(NewMemory(nil), []Array{a}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.pace.quiet = []time.Duration{5 * time.Minute, 2 * time.Minute}
		s, err := f.Begin(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Write("a", a.Data); err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(State{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		select {
		case <-s.Done():
			t.Error("it was not spread")
		default:
		}
		begun := time.Now()
		if err := f.Close(); err != nil || f.Stats().Committed != 1 || time.Since(begun) > time.Millisecond {
			t.Errorf("%v, %+v, after %v", err, f.Stats(), time.Since(begun))
		}
		<-s.Done()
	})
}

// A save may take half of the shortest time of the last eight, each counted once.
func TestSpread(t *testing.T) {
	var p pace
	now := time.Unix(0, 0)
	quiet := func(d time.Duration) {
		p.left = now
		now = now.Add(d)
		p.asked(now)
		now = now.Add(time.Millisecond) // who asks again asks for nothing new
		p.asked(now)
	}
	for _, c := range []struct {
		quiet, want time.Duration
		times       int
	}{{10 * time.Second, 5 * time.Second, 1}, {4 * time.Second, 2 * time.Second, 1}, {6 * time.Second, 2 * time.Second, 7}, {6 * time.Second, 3 * time.Second, 1}} {
		for range c.times {
			quiet(c.quiet)
		}
		if got := p.spread(); got != c.want {
			t.Errorf("after %d times %v: %v, want %v", c.times, c.quiet, got, c.want)
		}
	}
	if got := ahead(4*time.Second, 3, 8, time.Second); got != 500*time.Millisecond {
		t.Errorf("three eighths of four seconds are %v ahead of one", got)
	}
}
