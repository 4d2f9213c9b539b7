package runlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/evenkeel/evenkeel/cluster/sim"
)

// ErrDiffers says that a replay came out otherwise than the log.
var ErrDiffers = errors.New("the replay differs from the log")

// Replay hands the logged sizes to the simulator that the header describes and checks
// that every report comes back the same. It returns the number of rounds replayed.
func Replay(ctx context.Context, in io.Reader) (int, error) {
	r, err := NewReader(in)
	if err != nil {
		return 0, err
	}
	s := sim.New(r.Cluster, r.Header.Conditions, r.Header.Seed)
	for rounds := 0; ; rounds++ {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rounds, nil
		}
		if err != nil {
			return rounds, err
		}
		report, err := s.Round(ctx, e.Sizes)
		if ctx.Err() != nil {
			return rounds, err
		}
		if err != nil {
			return rounds, fmt.Errorf("%w: %w", ErrDiffers, err)
		}
		if !reflect.DeepEqual(*report, e.Report) {
			return rounds, fmt.Errorf("%w in round %d: was the log written by another version (%s)?", ErrDiffers, rounds, r.Header.Evenkeel)
		}
	}
}
