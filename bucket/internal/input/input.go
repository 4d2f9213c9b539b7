// Package input makes checksums of input, and errors about bad files and settings.
package input

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"

	"github.com/zeebo/xxh3"

	"evenkeel/internal/badinput"
)

// Err is wrapped by all errors of Errorf.
var Err = badinput.New("bucket: bad input")

// Errorf makes an error with this text alone. It should name file, line and field.
func Errorf(format string, args ...any) error { return &bad{fmt.Sprintf(format, args...)} }

type bad struct{ text string }

func (b *bad) Error() string        { return b.text }
func (b *bad) Is(target error) bool { return target == Err }
func (b *bad) BadInput() bool       { return true }

// Checksum is the XXH3 of numbers as 4 little-endian bytes each, in hexadecimal.
func Checksum(numbers iter.Seq[uint32]) string {
	h := xxh3.New()
	buf := make([]byte, 0, 1<<16)
	for v := range numbers {
		if buf = binary.LittleEndian.AppendUint32(buf, v); len(buf) == cap(buf) {
			_, _ = h.Write(buf) // never fails
			buf = buf[:0]
		}
	}
	_, _ = h.Write(buf)
	return hex.EncodeToString(h.Sum(nil))
}
