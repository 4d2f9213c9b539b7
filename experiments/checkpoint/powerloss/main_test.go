package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestRun is the experiment in small: fewer saves, one loss at each operation.
func TestRun(t *testing.T) {
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skip("no FUSE: ", err)
	} else {
		_ = f.Close()
	}
	if _, err := exec.LookPath("fusermount3"); err != nil && os.Getuid() != 0 {
		t.Skip("not root, and there is no fusermount3")
	}
	if err := run(3, 1); err != nil {
		t.Fatal(err)
	}
}
