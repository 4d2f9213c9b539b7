package checkpoint

import (
	"errors"

	"github.com/evenkeel/evenkeel/checkpoint/internal/storage"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// What callers act on; errors of this package wrap them.
var (
	// ErrEmpty is told by Restore where no checkpoint was ever committed: the one case to start from the beginning.
	ErrEmpty = badinput.New("checkpoint: no checkpoint in the file yet")
	// ErrCorrupt is told where something should be there and does not verify.
	ErrCorrupt = errors.New("checkpoint: damaged")
	// ErrFormat is told of files that are no checkpoint files.
	ErrFormat = badinput.New("checkpoint: not a checkpoint file")
	// ErrVersion is told of files of another version of the format.
	ErrVersion = badinput.New("checkpoint: other format version")
	// ErrEndian is told of files written on a machine of the other byte order.
	ErrEndian = badinput.New("checkpoint: other byte order")
	// ErrSchema is told of a file with other arrays than the program's, or of an array that is none of the file's.
	ErrSchema = badinput.New("checkpoint: arrays differ")
	// ErrLocked is told where another process writes the file.
	ErrLocked = storage.ErrLocked
	// ErrBusy is told by Begin where no slot is free and Options.WhenFull is Fail.
	ErrBusy = errors.New("checkpoint: no slot is free")
	// ErrIncomplete is told by Commit where an array has not been written.
	ErrIncomplete = errors.New("checkpoint: not every array was written")
	// ErrPoisoned is told where so many slots failed to reach the storage that none can be written safely.
	ErrPoisoned = errors.New("checkpoint: too few slots left that can be trusted")
	// ErrNotRestored is told by Begin on a file with checkpoints of which none was restored or verified.
	ErrNotRestored = errors.New("checkpoint: restore first")
	// ErrUsage is told of calls out of order and of values out of range.
	ErrUsage = badinput.New("checkpoint: wrong use")
)
