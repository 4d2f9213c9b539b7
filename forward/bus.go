package forward

import (
	"context"
	"sync"
)

// Bus carries frames to all processors, in one order that is the same for all of them.
type Bus interface {
	// Publish sends a frame.
	Publish(ctx context.Context, frame []byte) error
	// Next returns the next frame, from the beginning of the run or the last snapshot on. It waits until there is one or ctx
	// ends. Nothing, of length 0, is for the Bus itself and to be passed over.
	Next(ctx context.Context) ([]byte, error)
	// Behind says whether Next has something at once.
	Behind() bool
}

// Memory is a run's frames within one process. Reader gives each processor its Bus.
type Memory struct {
	mu      sync.Mutex
	frames  [][FrameBytes]byte
	changed chan struct{} // closed at the next frame
	readers []*memoryReader
	sealed  bool
	dropped int // frames before the first of frames
}

// NewMemory has no frames.
func NewMemory() *Memory { return &Memory{changed: make(chan struct{})} }

// Reader begins with the first frame.
func (m *Memory) Reader() Bus {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &memoryReader{memory: m}
	m.readers = append(m.readers, r)
	return r
}

// Seal says that no reader will be added: frames that all have read are dropped from now on.
func (m *Memory) Seal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealed = true
}

// dropEvery is how many frames gather before it is seen which are read.
const dropEvery = 1 << 12

func (m *Memory) drop() {
	if !m.sealed || len(m.frames) < dropEvery {
		return
	}
	read := m.dropped + len(m.frames)
	for _, r := range m.readers {
		read = min(read, r.at)
	}
	m.frames = append(m.frames[:0], m.frames[read-m.dropped:]...)
	m.dropped = read
}

type memoryReader struct {
	memory *Memory
	at     int
}

func (r *memoryReader) Publish(_ context.Context, frame []byte) error {
	m := r.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	m.frames = append(m.frames, [FrameBytes]byte(frame))
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (r *memoryReader) Next(ctx context.Context) ([]byte, error) {
	m := r.memory
	for {
		m.mu.Lock()
		if r.at < m.dropped+len(m.frames) {
			f := m.frames[r.at-m.dropped]
			r.at++
			m.mu.Unlock()
			return f[:], nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *memoryReader) Behind() bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.at < r.memory.dropped+len(r.memory.frames)
}
