package checkpoint

import (
	"context"
	"slices"
	"time"
)

// pace slows a save down, so that it uses the disk and a core evenly. A save is spread over half of the shortest quiet
// time of the last saves. A quiet time lasts from a Commit until a call asks for an array or a slot, so the arrays are
// read before they are needed. While a call waits, the save runs at full speed. The File's mutex guards pace.
type pace struct {
	left    time.Time       // when the newest save was committed; zero after a call asked
	quiet   []time.Duration // of the last saves
	waiting int             // calls that wait for a save now
	hurry   chan struct{}   // tells the writer that a call began to wait
}

const (
	quietSaves = 8
	leastPause = 2 * time.Millisecond // each pause takes some of the processor's time
)

// asked notes that a call wants an array, or a slot.
func (p *pace) asked(now time.Time) {
	if p.left.IsZero() {
		return
	}
	if len(p.quiet) == quietSaves {
		p.quiet = slices.Delete(p.quiet, 0, 1)
	}
	p.quiet = append(p.quiet, now.Sub(p.left))
	p.left = time.Time{}
}

// wait notes that a call waits, until the function that it returns is called.
func (p *pace) wait() (end func()) {
	p.waiting++
	select {
	case p.hurry <- struct{}{}:
	default:
	}
	return func() { p.waiting-- }
}

// spread returns how long the next save may take.
func (p *pace) spread() time.Duration {
	if len(p.quiet) == 0 {
		return 0
	}
	return slices.Min(p.quiet) / 2
}

// ahead returns how much sooner the bytes were written than at an even pace.
func ahead(spread time.Duration, done, total int64, took time.Duration) time.Duration {
	return time.Duration(float64(spread)*float64(done)/float64(max(total, 1))) - took
}

// hurried waits for a save, which runs at full speed meanwhile. It returns at once if the save is done.
func (f *File) hurried(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	f.mu.Lock()
	f.pace.asked(time.Now())
	end := f.pace.wait()
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		end()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause delays the writer while it is ahead, until a call waits.
func (f *File) pause(s *Save, n int) {
	s.moved += int64(n)
	d := ahead(s.spread, s.moved, f.head.bytes(), time.Since(s.since))
	if d < leastPause {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		f.mu.Lock()
		waiting := f.pace.waiting
		f.mu.Unlock()
		if waiting > 0 {
			return
		}
		select {
		case <-timer.C:
			return
		case <-f.pace.hurry:
		}
	}
}
