package forward

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// FrameBytes is the length of a frame, the only message that a processor sends in most steps.
const FrameBytes = 16

// ErrFrame is returned for bytes that are not a frame.
var ErrFrame = errors.New("forward: not a frame")

// Frame is a message of one processor to all: the losses of its two inputs, or the request to decide the step with the pairs
// that are there, or the request to end the run with this block.
//
//	0  4  step
//	4  2  rank
//	6  2  1: losses, 2: go on, 3: stop
//	8  8  losses: two float32; else zeros
//
// All little-endian.
type Frame struct {
	Step   uint32
	Rank   uint16
	Losses [2]float32 // of the two inputs, under the trial
	GoOn   bool
	Stop   bool // Step does not matter
}

const (
	lossFrame = 1
	goOnFrame = 2
	stopFrame = 3
)

// Encode appends the frame's bytes.
func (f Frame) Encode(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, f.Step)
	b = le.AppendUint16(b, f.Rank)
	switch {
	case f.GoOn:
		return le.AppendUint64(le.AppendUint16(b, goOnFrame), 0)
	case f.Stop:
		return le.AppendUint64(le.AppendUint16(b, stopFrame), 0)
	}
	b = le.AppendUint16(b, lossFrame)
	for _, l := range f.Losses {
		b = le.AppendUint32(b, math.Float32bits(l))
	}
	return b
}

// DecodeFrame reads a frame. Errors wrap ErrFrame.
func DecodeFrame(b []byte) (Frame, error) {
	le := binary.LittleEndian
	if len(b) != FrameBytes {
		return Frame{}, fmt.Errorf("%w: %d bytes, must be %d", ErrFrame, len(b), FrameBytes)
	}
	f := Frame{Step: le.Uint32(b), Rank: le.Uint16(b[4:])}
	switch kind := le.Uint16(b[6:]); kind {
	case lossFrame:
		f.Losses = [2]float32{math.Float32frombits(le.Uint32(b[8:])), math.Float32frombits(le.Uint32(b[12:]))}
	case goOnFrame, stopFrame:
		f.GoOn, f.Stop = kind == goOnFrame, kind == stopFrame
		if le.Uint64(b[8:]) != 0 {
			return Frame{}, fmt.Errorf("%w: of kind %d, with bytes that must be zero", ErrFrame, kind)
		}
	default:
		return Frame{}, fmt.Errorf("%w: of kind %d", ErrFrame, kind)
	}
	return f, nil
}
