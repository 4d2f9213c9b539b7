package ddqn

import (
	"errors"

	"github.com/evenkeel/evenkeel/ddqn/internal/wire"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Errors that callers can tell apart with errors.Is. They come wrapped with the place, what is wrong and the remedy.
// Those of files are bad input.
var (
	// ErrFormat: the file is not of this format, or contradicts itself.
	ErrFormat = badinput.New("ddqn: not a valid file")
	// ErrVersion: the file is of this format but of a version that this program cannot read.
	ErrVersion = badinput.New("ddqn: unsupported version")
	// ErrTruncated: the file ends too early.
	ErrTruncated = wire.ErrTruncated
	// ErrNotFinite: a weight, a loss or a gradient is NaN or infinite.
	ErrNotFinite = errors.New("ddqn: value is not finite")
	// ErrChecksum: the content is not what was written.
	ErrChecksum = badinput.New("ddqn: checksum does not match")
	// ErrMismatch: two things that must have the same shape or configuration have not.
	ErrMismatch = errors.New("ddqn: shapes or configurations differ")
)
