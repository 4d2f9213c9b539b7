package checkpoint

import (
	"cmp"
	"fmt"
)

// Mode says what a save takes the arrays' bytes from.
type Mode uint8

// Modes.
const (
	// ZeroCopy writes from the program's own memory: no memory of the file's, and Ready waits until an array is
	// written (not until it is durable).
	ZeroCopy Mode = iota
	// Staged copies each array first, in the background: as much memory as the arrays have, and Ready waits for the
	// copy only. It helps where the storage is slower than a step.
	Staged
)

// WhenFull says what Begin does when every slot is taken.
type WhenFull uint8

// What Begin can do.
const (
	Skip  WhenFull = iota // return a nil Save: this step is not saved
	Block                 // wait
	Fail                  // return ErrBusy
)

// Options of Create and Open. The zero value is a good choice.
type Options struct {
	// Slots is how many checkpoints the file has room for, 2 to 16; 0: 3. Create only.
	Slots int
	// StateBytes is the room for State's Random and Scalars; 0: 64 KiB; at most 1 GiB. Create only.
	StateBytes int
	// Rank and Ranks: this file holds the part of one of several processes that checkpoint together, see OpenSet.
	// Ranks 0 is 1. Create only.
	Rank, Ranks int
	// ID is the same in the files of all ranks; zero: a random one, for a single rank. Create only.
	ID [16]byte

	Mode     Mode
	WhenFull WhenFull
	// DAX maps a file on persistent memory (MAP_SYNC) and stores past the processor's caches. It is an error where
	// the file system cannot do that. Both ways write the same bytes.
	DAX bool
	// ReadOnly opens without the lock of the one writer, for looking into a file that may be in use. Open only.
	ReadOnly bool
	// Progress gets the bytes done, from Create, Restore and Verify; may be nil.
	Progress func(done, total int64)
}

func (o Options) slots() int { return cmp.Or(o.Slots, 3) }
func (o Options) ranks() int { return max(o.Ranks, 1) }

// Validate reports everything that is wrong.
func (o Options) Validate() error {
	var faults []string
	if s := o.slots(); s < 2 || s > MaxSlots {
		faults = append(faults, fmt.Sprintf("Slots is %d, must be 2 to %d", s, MaxSlots))
	}
	if o.StateBytes < 0 || o.StateBytes > 1<<30 {
		faults = append(faults, fmt.Sprintf("StateBytes is %d, must be 0 to %d", o.StateBytes, 1<<30))
	}
	if o.Ranks < 0 || o.Rank < 0 || o.Rank >= o.ranks() || o.Ranks > 1<<20 {
		faults = append(faults, fmt.Sprintf("Rank is %d of %d, must be 0 to Ranks - 1", o.Rank, o.Ranks))
	}
	if o.ranks() > 1 && o.ID == [16]byte{} {
		faults = append(faults, "ID is zero: the files of several ranks need one in common")
	}
	if o.Mode > Staged {
		faults = append(faults, fmt.Sprintf("Mode is %d, must be ZeroCopy or Staged", o.Mode))
	}
	if o.WhenFull > Fail {
		faults = append(faults, fmt.Sprintf("WhenFull is %d, must be Skip, Block or Fail", o.WhenFull))
	}
	if len(faults) > 0 {
		return fmt.Errorf("options: %q: %w", faults, ErrUsage)
	}
	return nil
}
