//go:build !linux || !amd64

package checkpoint

import (
	"errors"
	"fmt"
)

func openDAX(d *diskFile) (Storage, error) {
	return nil, fmt.Errorf("DAX for %s: %w on this system, leave it out", d.Name(), errors.ErrUnsupported)
}
