// Package fulldisk lets tests run out of disk, without rights or a disk of their own.
package fulldisk

import (
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// Most is how large a file may become on a full disk: go test writes small ones itself.
const Most = 1<<20 - 1

// Fill lets no file of this process grow beyond Most, until the function that it returns is called.
func Fill(t testing.TB) (free func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(most uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: most, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
	}
	set(Most)
	free = func() { set(before.Cur) }
	t.Cleanup(free)
	return free
}
