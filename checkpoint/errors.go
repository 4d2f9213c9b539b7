package checkpoint

import (
	"errors"

	"evenkeel/checkpoint/internal/storage"
	"evenkeel/internal/badinput"
)

// What callers act on; errors of this package wrap them.
var (
	// ErrEmpty is returned by Restore if no checkpoint was ever committed: the only case in which to start from the beginning.
	ErrEmpty = badinput.New("checkpoint: no checkpoint in the file yet")
	// ErrCorrupt is returned if something that should be there does not verify.
	ErrCorrupt = errors.New("checkpoint: damaged")
	// ErrFormat is returned for what is not a checkpoint file.
	ErrFormat = badinput.New("checkpoint: not a checkpoint file")
	// ErrVersion is returned for a file of another version of the format.
	ErrVersion = badinput.New("checkpoint: other format version")
	// ErrEndian is returned for a file written on a machine of the other byte order.
	ErrEndian = badinput.New("checkpoint: other byte order")
	// ErrSchema is returned if the file has other arrays than the program, or an array is not in the file.
	ErrSchema = badinput.New("checkpoint: arrays differ")
	// ErrLocked is returned if another process has the file open for writing.
	ErrLocked = storage.ErrLocked
	// ErrBusy is returned by Begin if no slot is free and Options.WhenFull is Fail.
	ErrBusy = errors.New("checkpoint: no slot is free")
	// ErrIncomplete is returned by Commit if an array has not been written.
	ErrIncomplete = errors.New("checkpoint: not every array was written")
	// ErrPoisoned is returned if so many slots failed to reach the storage that none can be written safely.
	ErrPoisoned = errors.New("checkpoint: too few slots left that can be trusted")
	// ErrNotRestored is returned by Begin on a file with checkpoints of which none was restored or verified.
	ErrNotRestored = errors.New("checkpoint: restore first")
	// ErrUsage is returned for calls out of order and values out of range.
	ErrUsage = badinput.New("checkpoint: invalid use")
)
