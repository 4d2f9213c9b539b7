// Package badinput marks errors as the fault of what the user gave, across rooms: whoever
// reports an error can tell bad input from a failure without a list of every room's errors.
// Programs outside this module use the interface itself:
//
//	var bad interface{ BadInput() bool }
//	if errors.As(err, &bad) && bad.BadInput() { ... }
package badinput

import (
	"errors"
	"fmt"
)

// mark is an error of bad input.
type mark struct{ error }

func (mark) BadInput() bool  { return true }
func (m mark) Unwrap() error { return m.error }

// New returns a sentinel error of bad input. Two calls return different errors, as with
// errors.New.
func New(text string) error { return mark{errors.New(text)} }

// Errorf is fmt.Errorf, marked as bad input.
func Errorf(format string, args ...any) error { return mark{fmt.Errorf(format, args...)} }

// Wrap marks err as bad input; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return mark{err}
}

// Is reports whether err, or an error that it wraps, is bad input.
func Is(err error) bool {
	var bad interface{ BadInput() bool }
	return errors.As(err, &bad) && bad.BadInput()
}
