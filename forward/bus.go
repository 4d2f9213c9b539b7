package forward

import (
	"context"
	"sync"
	"time"
)

// Bus carries messages to all processors, in one order that is the same for all of them.
type Bus interface {
	// Publish sends a frame in this processor's name.
	Publish(ctx context.Context, frame []byte) error
	// PublishBlock sends a block.
	PublishBlock(ctx context.Context, number int, block []byte) error
	// Next returns the next message. It waits until there is one or ctx ends.
	Next(ctx context.Context) (Message, error)
	// Behind says whether Next can return a message without waiting.
	Behind() bool
	// Since returns since when messages have flowed without interruption. A processor asks to go on without others only when
	// they have had time to come back.
	Since() time.Time
}

// Message is a frame or a block. One with neither is ignored.
type Message struct {
	Position uint64
	Rank     int // of the sender, as the bus knows it
	Frame    []byte
	Block    []byte
}

// Memory carries a run's messages within one process. Reader gives each processor its Bus.
type Memory struct {
	mu       sync.Mutex
	messages []Message
	changed  chan struct{} // closed at the next message
	readers  []*memoryReader
	sealed   bool
	dropped  int // messages before the first of messages
}

// NewMemory returns a Memory without messages.
func NewMemory() *Memory { return &Memory{changed: make(chan struct{})} }

// Reader returns the Bus of a rank, which begins with the first message.
func (m *Memory) Reader(rank int) Bus {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &memoryReader{memory: m, rank: rank}
	m.readers = append(m.readers, r)
	return r
}

// Seal says that no reader will be added, so that messages that all have read can be dropped.
func (m *Memory) Seal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealed = true
}

// dropEvery is the number of messages that gather before those that all have read are dropped.
const dropEvery = 1 << 12

func (m *Memory) drop() {
	if !m.sealed || len(m.messages) < dropEvery {
		return
	}
	read := m.dropped + len(m.messages)
	for _, r := range m.readers {
		read = min(read, r.at)
	}
	m.messages = append(m.messages[:0], m.messages[read-m.dropped:]...)
	m.dropped = read
}

// firstPosition is the position of a stream's first message after the header.
const firstPosition = 2

func (m *Memory) add(one Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
	one.Position = uint64(firstPosition + m.dropped + len(m.messages))
	m.messages = append(m.messages, one)
	close(m.changed)
	m.changed = make(chan struct{})
}

type memoryReader struct {
	memory *Memory
	rank   int
	at     int
}

func (r *memoryReader) Publish(_ context.Context, frame []byte) error {
	r.memory.add(Message{Rank: r.rank, Frame: frame})
	return nil
}

func (r *memoryReader) PublishBlock(_ context.Context, _ int, block []byte) error {
	r.memory.add(Message{Rank: r.rank, Block: block})
	return nil
}

func (r *memoryReader) Next(ctx context.Context) (Message, error) {
	m := r.memory
	for {
		m.mu.Lock()
		if r.at < m.dropped+len(m.messages) {
			one := m.messages[r.at-m.dropped]
			r.at++
			m.mu.Unlock()
			return one, nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

func (r *memoryReader) Since() time.Time { return time.Time{} }

func (r *memoryReader) Behind() bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.at < r.memory.dropped+len(r.memory.messages)
}
