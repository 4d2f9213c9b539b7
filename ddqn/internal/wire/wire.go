// Package wire reads and writes the parts that policy files and training states share.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"evenkeel/internal/badinput"
)

// ErrTruncated marks a file that ends too early. It is bad input.
var ErrTruncated = badinput.New("ddqn: file is truncated")

// MaxHeader is the largest JSON header in bytes: a reader takes that much into memory before it knows anything about a file.
const MaxHeader = 1 << 20

// ReadFull fills buf. An early end is ErrTruncated; what names the part in the message.
func ReadFull(r io.Reader, buf []byte, what string) error {
	n, err := io.ReadFull(r, buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%d of %d bytes of %s; copy the file again: %w", n, len(buf), what, ErrTruncated)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// AppendFloats appends values as little-endian bytes.
func AppendFloats(dst []byte, values []float32) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// TakeFloats fills dst from what AppendFloats wrote.
func TakeFloats(dst []float32, data []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}

// FirstNotFinite returns the index of the first NaN or infinity, or -1.
func FirstNotFinite(values []float32) int {
	return slices.IndexFunc(values, func(v float32) bool {
		return v-v != 0 // only NaN and the infinities differ from themselves here
	})
}

// StrictJSON decodes one value and nothing else, without unknown fields.
func StrictJSON(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("text after the value")
	}
	return nil
}
