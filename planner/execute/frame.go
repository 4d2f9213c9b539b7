package execute

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errFrame is wrapped by errors about bytes from a link that are no frame, or not one expected there.
var errFrame = errors.New("execute: not a frame of this protocol")

// protocol is the version that both ends of a link must speak.
const protocol = 1

// kind says what a frame carries.
type kind uint8

const (
	hello      kind = iota + 1 // client to server, JSON: who it is and what it was given
	welcome                    // server to client, JSON: how to train, where the stage before is
	join                       // stage to the one before it, JSON
	probe                      // between neighbours, any floats, answered by echo
	echo                       //
	ready                      // client to server, JSON: what its stage takes
	begin                      // server to client: an iteration; to the last stage with its targets
	activation                 // stage to the next: a micro-batch's floats
	gradient                   // stage to the one before: a micro-batch's floats
	loss                       // last stage to server: a float64
	finish                     // server to client: no more iterations
	report                     // client to server, JSON: what it measured
	fail                       // both ways, JSON: why the run cannot go on
	alive                      // both ways: nothing to say
	kinds
)

// headerBytes of a frame: length of the body (4), kind (1), zeros (3), iteration (8), micro-batch (4), zeros (4).
const headerBytes = 24

// maxControlBytes of a JSON body.
const maxControlBytes = 1 << 20

// frame is a header; the body follows it.
type frame struct {
	kind       kind
	iteration  uint64
	microBatch uint32
}

func appendHeader(b []byte, f frame, body int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(body))
	b = append(b, byte(f.kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, f.iteration)
	b = binary.LittleEndian.AppendUint32(b, f.microBatch)
	return append(b, 0, 0, 0, 0)
}

// readFrame reads a frame with a body of at most limit bytes, into buffer where it is long enough. The error is that of
// the reader or wraps errFrame.
func readFrame(r io.Reader, limit int, buffer []byte) (f frame, body []byte, err error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return f, nil, err
	}
	n := binary.LittleEndian.Uint32(header[:])
	f = frame{kind(header[4]), binary.LittleEndian.Uint64(header[8:]), binary.LittleEndian.Uint32(header[16:])}
	switch {
	case f.kind == 0 || f.kind >= kinds || header[5]|header[6]|header[7]|header[20]|header[21]|header[22]|header[23] != 0:
		return f, nil, fmt.Errorf("%w: header %x", errFrame, header)
	case int64(n) > int64(limit):
		return f, nil, fmt.Errorf("%w: a body of %d bytes; want at most %d", errFrame, n, limit)
	}
	if int(n) > cap(buffer) {
		buffer = make([]byte, n)
	}
	body = buffer[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return f, nil, err
	}
	return f, body, nil
}

func appendFloats(b []byte, values []float32) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// floats sets values to those of a body of just as many.
func floats(values []float32, body []byte) error {
	if len(body) != 4*len(values) {
		return fmt.Errorf("%w: %d bytes for %d floats", errFrame, len(body), len(values))
	}
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return nil
}

func appendTargets(b []byte, targets []int32) []byte {
	for _, t := range targets {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return b
}

// targets is floats of whole numbers.
func targets(values []int32, body []byte) error {
	if len(body) != 4*len(values) {
		return fmt.Errorf("%w: %d bytes for %d targets", errFrame, len(body), len(values))
	}
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(body[4*i:]))
	}
	return nil
}
