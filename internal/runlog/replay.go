package runlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"evenkeel/cluster/memory"
	"evenkeel/cluster/sim"
	"evenkeel/internal/badinput"
)

// errDiffers says that a replay gave other reports than the log has.
var errDiffers = errors.New("runlog: the replay differs from the log")

// Replay hands the logged sizes to the simulator that the header describes and checks
// that every report comes back the same. It returns the number of rounds replayed,
// and whether the log ends in a line that was cut.
func Replay(ctx context.Context, in io.Reader) (rounds int, cut bool, err error) {
	r, err := NewReader(in)
	if err != nil {
		return 0, false, err
	}
	if r.Header.Source == Live {
		return 0, false, badinput.New("runlog: the log is of a live job: no simulator can replay it")
	}
	s, limits := sim.New(r.Cluster, r.Header.Conditions, r.Header.Seed), memory.New(r.Cluster)
	for ; ; rounds++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rounds, r.Cut, nil
		}
		if err != nil {
			return rounds, false, err
		}
		plan := e.Plan()
		report, err := s.Round(ctx, plan)
		if ctx.Err() != nil {
			return rounds, false, err
		}
		if err != nil {
			return rounds, false, fmt.Errorf("%w: %w", errDiffers, err)
		}
		if !reflect.DeepEqual(*report, e.Report) {
			return rounds, false, fmt.Errorf("%w in round %d: was the log written by another version (%s)?", errDiffers, rounds, r.Header.Evenkeel)
		}
		limits.Observe(report, plan.Sizes, plan.Beyond()) // as the controller did
	}
}
