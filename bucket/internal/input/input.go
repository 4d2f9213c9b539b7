// Package input makes the errors of length buckets that are the fault of a file or a setting.
package input

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Err is what errors.Is finds in them.
var Err = badinput.New("bucket: bad input")

// Errorf makes an error whose text is the format's alone: it names file, line and field where there are any.
func Errorf(format string, args ...any) error { return &bad{fmt.Sprintf(format, args...)} }

type bad struct{ text string }

func (b *bad) Error() string        { return b.text }
func (b *bad) Is(target error) bool { return target == Err }
func (b *bad) BadInput() bool       { return true }
