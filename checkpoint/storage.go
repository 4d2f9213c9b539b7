package checkpoint

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// Storage stores a checkpoint file: an ordinary file, persistent memory, or memory for tests. Several
// goroutines read and write at a time, never the same bytes; none writes during Fence and Flush.
type Storage interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the storage's length in bytes.
	Size() (int64, error)
	// Allocate gives an empty storage its length, full of zeros that are durable. It reports progress in bytes.
	Allocate(size int64, progress func(done, total int64)) error
	// Fence keeps what is written after it from becoming durable before what was written before it, as far as both
	// lie within one block.
	Fence() error
	// Flush returns once everything written is durable. After an error nothing is known of what was written since
	// the last Flush that returned none.
	Flush() error
}

// Memory is a Storage in memory, for tests and for programs that only want the format.
type Memory struct {
	mu   sync.RWMutex
	data []byte
}

// NewMemory makes one from the bytes of a file; nil for an empty one. The bytes are the Memory's from then on.
func NewMemory(file []byte) *Memory { return &Memory{data: file} }

// Contents returns a copy of its bytes.
func (m *Memory) Contents() []byte {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]byte(nil), m.data...)
}

// ReadAt is io.ReaderAt's.
func (m *Memory) ReadAt(p []byte, at int64) (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return bytes.NewReader(m.data).ReadAt(p, at)
}

// WriteAt is io.WriterAt's; it does not grow the storage.
func (m *Memory) WriteAt(p []byte, at int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at < 0 || at+int64(len(p)) > int64(len(m.data)) {
		return 0, fmt.Errorf("write %d bytes at %d of %d: %w", len(p), at, len(m.data), io.ErrShortWrite)
	}
	return copy(m.data[at:], p), nil
}

// Size is Storage's.
func (m *Memory) Size() (int64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return int64(len(m.data)), nil
}

// Allocate is Storage's.
func (m *Memory) Allocate(size int64, _ func(done, total int64)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = make([]byte, size)
	return nil
}

// Fence is Storage's.
func (*Memory) Fence() error { return nil }

// Flush is Storage's.
func (*Memory) Flush() error { return nil }

// Close is Storage's.
func (*Memory) Close() error { return nil }

// writeFull turns a short write without an error into one.
func writeFull(s Storage, p []byte, at int64) error {
	n, err := s.WriteAt(p, at)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d: %w", len(p), at, err)
	}
	return nil
}
