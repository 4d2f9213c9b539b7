// Package tensorboard writes event files of scalars, which TensorBoard draws. See the Example.
//
// An event file is a sequence of TFRecords, each with its checksums, each holding one
// Event message of TensorFlow's event.proto; docs/reference/formats/tensorboard.md has the bytes.
// As a log it is written record by record, not in one piece: after a crash every
// record but the last is good, and readers stop there.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"
)

// version is the content of the first event of a file.
const version = "brain.Event:2"

// Scalar is a number with its name; slashes in the tag group charts.
type Scalar struct {
	Tag   string
	Value float32
}

// Event is one record of a file: the version, a restart or scalars.
type Event struct {
	Seconds float64 // wall time since 1970
	Step    int64   // >= 0
	Version string  // of the first event of a file
	Restart bool    // what other files hold from Step on is void
	Scalars []Scalar
}

// Writer appends to one event file. Every event is handed to the operating system at
// once, so that TensorBoard shows it. It belongs to one goroutine.
type Writer struct {
	file *os.File
}

// Create begins a new event file in dir, named after the time.
func Create(dir string, now time.Time) (*Writer, error) {
	for serial := 0; ; serial++ {
		name := filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%010d.evenkeel.%d", now.Unix(), serial))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue // another run of the same second
		}
		if err != nil {
			return nil, fmt.Errorf("tensorboard: %w", err)
		}
		w := &Writer{f}
		if err := w.write(Event{Seconds: seconds(now), Version: version}); err != nil {
			f.Close()
			return nil, err
		}
		return w, nil
	}
}

// Name is the path of the file.
func (w *Writer) Name() string { return w.file.Name() }

// Scalars appends one event.
func (w *Writer) Scalars(now time.Time, step int64, scalars ...Scalar) error {
	return w.write(Event{Seconds: seconds(now), Step: step, Scalars: scalars})
}

// Restart voids what earlier files of the folder hold from the step on: the run has
// gone back to an older checkpoint.
func (w *Writer) Restart(now time.Time, step int64) error {
	return w.write(Event{Seconds: seconds(now), Step: step, Restart: true})
}

// Close syncs and closes the file.
func (w *Writer) Close() error {
	if err := errors.Join(w.file.Sync(), w.file.Close()); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

func (w *Writer) write(e Event) error {
	if _, err := w.file.Write(record(e.encode())); err != nil {
		return fmt.Errorf("tensorboard: %w", err)
	}
	return nil
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// Fields of the messages, (number << 3) | wire type; wire types are 0 for a varint, 1
// for 8 bytes, 2 for a length and so many bytes, 5 for 4 bytes.
const (
	eventWallTime    = 1<<3 | 1
	eventStep        = 2 << 3
	eventFileVersion = 3<<3 | 2
	eventSummary     = 5<<3 | 2
	eventSessionLog  = 7<<3 | 2
	summaryValue     = 1<<3 | 2
	valueTag         = 1<<3 | 2
	valueSimple      = 2<<3 | 5
	sessionStatus    = 1 << 3
	sessionStart     = 1
)

// encode is the Event message; as in proto3, zero fields are left out.
func (e *Event) encode() []byte {
	le := binary.LittleEndian
	var b []byte
	if e.Seconds != 0 {
		b = le.AppendUint64(append(b, eventWallTime), math.Float64bits(e.Seconds))
	}
	if e.Step != 0 {
		b = binary.AppendUvarint(append(b, eventStep), uint64(e.Step))
	}
	if e.Version != "" {
		b = field(b, eventFileVersion, []byte(e.Version))
	}
	if len(e.Scalars) > 0 {
		var summary []byte
		for _, s := range e.Scalars {
			value := field(nil, valueTag, []byte(s.Tag))
			value = le.AppendUint32(append(value, valueSimple), math.Float32bits(s.Value))
			summary = field(summary, summaryValue, value)
		}
		b = field(b, eventSummary, summary)
	}
	if e.Restart {
		b = field(b, eventSessionLog, []byte{sessionStatus, sessionStart})
	}
	return b
}

// field appends a length-delimited field.
func field(b []byte, key byte, content []byte) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(len(content)))
	return append(b, content...)
}

// record frames a message: length, its checksum, message, its checksum.
func record(message []byte) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(len(message)))
	b = le.AppendUint32(b, checksum(b))
	b = append(b, message...)
	return le.AppendUint32(b, checksum(message))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C, masked, as TFRecords want it.
func checksum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
