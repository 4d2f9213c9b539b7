package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"evenkeel/checkpoint"
	"evenkeel/internal/badinput"
)

// lossLog is the file of losses, a line per step. A line is written when its step is done: after a kill it may be missing
// though the step was saved.
type lossLog struct {
	*os.File
}

const lossHeader = "step,loss\n"

// openLosses opens the file to append after this step, and cuts off later lines of an interrupted run.
func openLosses(path string, step uint64) (*lossLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, badinput.Wrap(err)
	}
	l := &lossLog{f}
	keep, err := l.lines(step, func(uint64, float64) {})
	if err == nil && keep == 0 {
		_, err = f.WriteAt([]byte(lossHeader), 0)
		keep = int64(len(lossHeader))
	}
	if err == nil {
		err = f.Truncate(keep)
	}
	if err == nil {
		_, err = f.Seek(keep, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// lines reports the complete lines up to a step, and returns where they end.
func (l *lossLog) lines(step uint64, report func(step uint64, loss float64)) (end int64, _ error) {
	if _, err := l.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for r, number := bufio.NewReader(l.File), 1; ; number++ {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) { // the last line is incomplete
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if number > 1 {
			a, b, _ := strings.Cut(strings.TrimSpace(line), ",")
			at, err := strconv.ParseUint(a, 10, 64)
			loss, other := strconv.ParseFloat(b, 64)
			if err := errors.Join(err, other); err != nil {
				return 0, badinput.Errorf("%s: line %d: %w; move the file away to resume without it", l.Name(), number, err)
			}
			if at > step {
				return end, nil
			}
			report(at, loss)
		} else if line != lossHeader {
			return 0, badinput.Errorf("%s: line 1 is not %q; move the file away to resume without it", l.Name(), strings.TrimSpace(lossHeader))
		}
		end += int64(len(line))
	}
}

func (l *lossLog) add(step uint64, loss float64) error {
	_, err := fmt.Fprintf(l.File, "%d,%v\n", step, loss)
	return err
}

// read returns all steps with their losses.
func (l *lossLog) read() (steps, losses []float64, err error) {
	_, err = l.lines(1<<62, func(step uint64, loss float64) {
		steps = append(steps, float64(step))
		losses = append(losses, loss)
	})
	return steps, losses, err
}

// began returns an error if steps were trained: the checkpoint file is made before the file of losses, so it was lost.
func (r *savedRun) began() error {
	path := r.command.path(lossesFile)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	last := uint64(0)
	if _, err := (&lossLog{f}).lines(1<<62, func(step uint64, _ float64) { last = step }); err != nil {
		return err
	}
	if last > 0 {
		return fmt.Errorf("%s lists %d steps, but the checkpoint file is missing; restore it, or start another run with --out: %w", path, last, checkpoint.ErrCorrupt)
	}
	return nil
}
