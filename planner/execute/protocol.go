package execute

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"evenkeel/internal/badinput"
)

// docs/reference/formats/plan-wire.md says in which order stages send these frames.

// errRefused is wrapped by the error of a client that the server refuses: its plan, model or version differs, or its stage has already joined.
// It is bad input.
var errRefused = badinput.New("execute: the server refuses this stage")

// errLost is wrapped by errors about a stage that went away, or stopped responding, before the run was over.
var errLost = errors.New("execute: lost")

// errFrame is wrapped by errors about bytes from a link that are not a frame, or not an expected one.
var errFrame = errors.New("execute: not a frame of this protocol")

// protocol is the version that both ends of a link must speak.
const protocol = 1

// kind says what a frame carries.
type kind uint8

const (
	hello      kind = iota + 1 // client to server, JSON: its stage, plan and network
	welcome                    // server to client, JSON: how to train, and where the previous stage is
	join                       // a stage to the previous one, JSON
	probe                      // a stage to the previous one: floats, answered by echo
	echo                       // the same floats back
	ready                      // client to server, JSON: the measured times of its stage
	begin                      // server to client: run an iteration; to the last stage with the targets
	activation                 // a stage to the next: a micro-batch's floats
	gradient                   // a stage to the previous one: a micro-batch's floats
	loss                       // last stage to server: a float64
	finish                     // server to client: there are no more iterations
	report                     // client to server, JSON: what it measured
	fail                       // both ways, JSON: why the run cannot go on
	alive                      // both ways: the sender still works
	kinds
)

// Bodies in JSON.
type (
	helloBody struct {
		Protocol int    `json:"protocol"`
		Stage    int    `json:"stage"`
		Plan     string `json:"plan"`    // Job.planHash
		Network  string `json:"network"` // train.Network.Hash
		Listen   string `json:"listen"`  // where the next stage connects; "" for the last one
	}
	welcomeBody struct {
		Run      string   `json:"run"` // a random word by which neighbours know that they belong to one run
		Training Training `json:"training"`
		Previous string   `json:"previous"` // address of the previous stage; "": the server's own
	}
	joinBody struct {
		Run string `json:"run"`
	}
	readyBody struct {
		Taken stageTimes `json:"taken"`
		Send  float64    `json:"send"` // seconds in which a micro-batch reaches the previous stage
	}
	failBody struct {
		Text    string `json:"text"`
		Refused bool   `json:"refused,omitempty"` // the hello was refused
		Lost    bool   `json:"lost,omitempty"`    // a stage was lost
	}
)

// error is the error that the other side reported.
func (b failBody) error() error {
	switch {
	case b.Refused:
		return fmt.Errorf("%w: %s", errRefused, b.Text)
	case b.Lost:
		return fmt.Errorf("%w %s", errLost, b.Text)
	}
	return errors.New(b.Text)
}

func decode(body []byte, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

// headerBytes of a frame, little-endian: length of the body (4), kind (1), zeros (3), iteration, from 0 (8), micro-batch, from 0 (4), zeros (4).
const headerBytes = 24

// maxControlBytes is the length of the longest body in JSON.
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

// readFrame reads a frame with a body of at most limit bytes, into buffer if that is long enough. The error is the reader's or wraps
// errFrame.
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

// appendWords appends numbers of 4 bytes each.
func appendWords[T float32 | int32](b []byte, values []T) []byte {
	b, err := binary.Append(b, binary.LittleEndian, values)
	if err != nil {
		panic(err) // the size of these numbers is fixed
	}
	return b
}

// words reads exactly as many numbers as values has.
func words[T float32 | int32](values []T, body []byte) error {
	if len(body) != 4*len(values) {
		return fmt.Errorf("%w: %d bytes for %d numbers", errFrame, len(body), len(values))
	}
	_, err := binary.Decode(body, binary.LittleEndian, values)
	return err
}
