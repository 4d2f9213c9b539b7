//go:build !linux

package bench

import (
	"errors"
	"fmt"

	"github.com/evenkeel/evenkeel/checkpoint"
)

type raw struct{}

func newRaw(string, int64) (*raw, error) {
	return nil, fmt.Errorf("measuring a disk's limits: %w on this system", errors.ErrUnsupported)
}

func (*raw) close()                                            {}
func (*raw) writes([]checkpoint.Array) map[string]func() error { return nil }
func (*raw) reads([]checkpoint.Array) map[string]func() error  { return nil }

// DropCache is not possible on this system.
func DropCache(string) error { return errors.ErrUnsupported }
func removeAll(string)       {}
