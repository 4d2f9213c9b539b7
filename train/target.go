package train

import (
	"context"

	"github.com/evenkeel/evenkeel/checkpoint"
)

// target is where a trainer saves: a checkpoint.File, or a checkpoint.Set of one file per node.
type target interface {
	// begin returns nil for a step that is skipped.
	begin(ctx context.Context, step uint64) (saving, error)
	Ready(array string)
}

// saving is a checkpoint.Save or SetSave.
type saving interface {
	Write(array string, data []byte) error
	Commit(state checkpoint.State) error
	Done() <-chan struct{}
	Wait(ctx context.Context) error
	Abort()
}

type single struct{ *checkpoint.File }

func (f single) begin(ctx context.Context, step uint64) (saving, error) {
	s, err := f.Begin(ctx, step)
	if s == nil { // an interface that holds a nil pointer is not nil
		return nil, err
	}
	return s, err
}

type striped struct{ *checkpoint.Set }

func (f striped) begin(ctx context.Context, step uint64) (saving, error) {
	s, err := f.Begin(ctx, step)
	if s == nil {
		return nil, err
	}
	return s, err
}
