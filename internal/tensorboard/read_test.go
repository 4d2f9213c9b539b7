package tensorboard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// errFormat marks every error about the content of an event file.
var errFormat = errors.New("tensorboard: not an event file of this writer")

// maxRecord bounds what a damaged length makes the reader take into memory.
const maxRecord = 1 << 20

// readAll returns the events of a file. It is strict: it takes what Writer writes and
// nothing else, so that it can vouch for the writer in tests.
func readAll(r io.Reader) ([]Event, error) {
	var events []Event
	for {
		message, err := readRecord(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		e, err := decode(message)
		if err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", errFormat, len(events), err)
		}
		if (e.Version != "") != (len(events) == 0) || len(events) == 0 && e.Version != version {
			return nil, fmt.Errorf("%w: event %d has version %q", errFormat, len(events), e.Version)
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%w: empty", errFormat)
	}
	return events, nil
}

// readRecord returns the next message, io.EOF at the end.
func readRecord(r io.Reader) ([]byte, error) {
	var head [12]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) && n == 0 {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w: cut off: %v", errFormat, err)
	}
	le := binary.LittleEndian
	size := le.Uint64(head[:8])
	if checksum(head[:8]) != le.Uint32(head[8:]) || size > maxRecord {
		return nil, fmt.Errorf("%w: damaged length", errFormat)
	}
	b := make([]byte, size+4)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fmt.Errorf("%w: cut off: %v", errFormat, err)
	}
	message := b[:size]
	if checksum(message) != le.Uint32(b[size:]) {
		return nil, fmt.Errorf("%w: damaged message", errFormat)
	}
	return message, nil
}

var errMessage = errors.New("unexpected message")

// decode reads a message and checks that it is the canonical encoding of its content.
func decode(message []byte) (Event, error) {
	var e Event
	err := fields(message, func(key byte, number uint64, content []byte) error {
		switch key {
		case eventWallTime:
			e.Seconds = math.Float64frombits(number)
		case eventStep:
			e.Step = int64(number)
		case eventFileVersion:
			e.Version = string(content)
		case eventSummary:
			return fields(content, e.scalar)
		case eventSessionLog:
			e.Restart = true
		default:
			return errMessage
		}
		return nil
	})
	if err == nil && (e.Step < 0 || !bytes.Equal(e.encode(), message)) {
		err = errMessage
	}
	return e, err
}

// scalar takes one value of a summary.
func (e *Event) scalar(key byte, _ uint64, content []byte) error {
	if key != summaryValue {
		return errMessage
	}
	var s Scalar
	err := fields(content, func(key byte, number uint64, content []byte) error {
		switch key {
		case valueTag:
			s.Tag = string(content)
		case valueSimple:
			s.Value = math.Float32frombits(uint32(number))
		default:
			return errMessage
		}
		return nil
	})
	e.Scalars = append(e.Scalars, s)
	return err
}

// fields hands every field of a message to take: its number, or its content.
func fields(b []byte, take func(key byte, number uint64, content []byte) error) error {
	for len(b) > 0 {
		key := b[0]
		b = b[1:]
		var number uint64
		var content []byte
		var size int
		switch key & 7 {
		case 0, 2:
			if number, size = binary.Uvarint(b); size <= 0 {
				return errMessage
			}
		case 1:
			if size = 8; len(b) >= size {
				number = binary.LittleEndian.Uint64(b)
			}
		case 5:
			if size = 4; len(b) >= size {
				number = uint64(binary.LittleEndian.Uint32(b))
			}
		default:
			return errMessage
		}
		if len(b) < size {
			return errMessage
		}
		b = b[size:]
		if key&7 == 2 {
			if number > uint64(len(b)) {
				return errMessage
			}
			content, b = b[:number], b[number:]
		}
		if err := take(key, number, content); err != nil {
			return err
		}
	}
	return nil
}
