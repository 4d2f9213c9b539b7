//go:build !linux || !amd64

package storage

import (
	"errors"
	"fmt"
)

// Mapped is a file on persistent memory; on this system there is none.
type Mapped struct{ *Disk }

// OpenDAX is an error on this system.
func OpenDAX(d *Disk) (*Mapped, error) {
	return nil, fmt.Errorf("DAX for %s: %w on this system, leave it out", d.Name(), errors.ErrUnsupported)
}
