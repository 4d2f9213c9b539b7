package checkpoint

import (
	"io"
	"math/rand/v2"
	"slices"
	"sync"
)

// event is what a recorded disk saw.
type event struct {
	disk int
	kind string // write, fence, flush, or ack of a step that was told to be durable, begin of one
	at   int64
	data []byte
	step uint64
	what string // of a write to a record, for the mutants
}

// journal records the events of several disks in their order.
type journal struct {
	mu     sync.Mutex
	events []event
}

func (j *journal) add(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// recorded is memory that tells a journal what is done to it.
type recorded struct {
	*Memory
	disk int
	to   *journal
}

func (r recorded) WriteAt(p []byte, at int64) (int, error) {
	r.to.add(event{disk: r.disk, kind: "write", at: at, data: slices.Clone(p)})
	return r.Memory.WriteAt(p, at)
}

func (r recorded) Fence() error {
	r.to.add(event{disk: r.disk, kind: "fence"})
	return nil
}

func (r recorded) Flush() error {
	r.to.add(event{disk: r.disk, kind: "flush"})
	return nil
}

// disk is what a storage keeps through a loss of power. What was written since the last flush reached it or not, unit
// by unit, and a unit that was written several times reached it as it was at any one moment.
type disk struct {
	unit    int64 // 512: sectors of a disk behind a page cache; 8: words of persistent memory behind write buffers
	fences  bool  // a fence is a flush
	durable []byte
	late    map[int64][][]byte // versions since the flush, by unit
}

func (d *disk) apply(e event) {
	switch {
	case e.kind == "write":
		for at := e.at / d.unit * d.unit; at < e.at+int64(len(e.data)); at += d.unit {
			now := slices.Clone(d.newest(at))
			from := max(at, e.at)
			copy(now[from-at:], e.data[from-e.at:])
			d.late[at] = append(d.late[at], now)
		}
	case e.kind == "flush", e.kind == "fence" && d.fences:
		for at := range d.late {
			copy(d.durable[at:], d.newest(at))
		}
		clear(d.late)
	}
}

func (d *disk) newest(at int64) []byte {
	if v := d.late[at]; len(v) > 0 {
		return v[len(v)-1]
	}
	return d.durable[at : at+d.unit]
}

// crash is what is left when the power fails now. Each unit keeps what keep chooses: 0 what it was at the flush, n its
// last version.
func (d *disk) crash(keep func(n int) int) *afterCrash {
	patch := map[int64][]byte{}
	for _, at := range slices.Sorted(keysOf(d.late)) {
		if v := keep(len(d.late[at])); v > 0 {
			patch[at] = d.late[at][v-1]
		}
	}
	return &afterCrash{Memory: NewMemory(d.durable), unit: d.unit, patch: patch}
}

func keysOf(m map[int64][][]byte) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// crashes are ways to lose what was not flushed: all of it, nothing, any of it.
func crashes(r *rand.Rand) []func(int) int {
	some := func(n int) int { return r.IntN(n + 1) }
	rare := func(n int) int {
		if r.IntN(50) > 0 {
			return n
		}
		return 0
	}
	one := func(n int) int {
		if r.IntN(20) > 0 {
			return 0
		}
		return n
	}
	return []func(int) int{func(int) int { return 0 }, func(n int) int { return n }, some, some, rare, one}
}

// afterCrash is a disk's contents for a reader: a layer of units over the bytes, which stay as they are.
type afterCrash struct {
	*Memory
	unit  int64
	patch map[int64][]byte
}

func (a *afterCrash) ReadAt(p []byte, at int64) (int, error) {
	n, err := a.Memory.ReadAt(p, at)
	for u := at / a.unit * a.unit; u < at+int64(n); u += a.unit {
		if v, ok := a.patch[u]; ok {
			from, to := max(u, at), min(u+a.unit, at+int64(n))
			copy(p[from-at:to-at], v[from-u:])
		}
	}
	return n, err
}

func (a *afterCrash) WriteAt(p []byte, at int64) (int, error) {
	for u := at / a.unit * a.unit; u < at+int64(len(p)); u += a.unit {
		v := make([]byte, a.unit)
		if _, err := a.ReadAt(v, u); err != nil && err != io.EOF { //nolint:errorlint // Memory returns it bare
			return 0, err
		}
		from := max(u, at)
		copy(v[from-u:], p[from-at:])
		a.patch[u] = v
	}
	return len(p), nil
}

// faulty fails at one operation.
type faulty struct {
	Storage
	kind  string // write, short, flush
	after int    // operations of that kind that succeed
	then  int    // how many fail after that
	err   error
	mu    sync.Mutex
}

func (f *faulty) fails(kind string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind != f.kind {
		return false
	}
	f.after--
	return f.after < 0 && f.after >= -f.then
}

func (f *faulty) WriteAt(p []byte, at int64) (int, error) {
	if f.fails("write") {
		return 0, f.err
	}
	if f.fails("short") {
		n, err := f.Storage.WriteAt(p[:len(p)/2], at)
		return n, err
	}
	return f.Storage.WriteAt(p, at)
}

func (f *faulty) Flush() error {
	if f.fails("flush") {
		return f.err
	}
	return f.Storage.Flush()
}
