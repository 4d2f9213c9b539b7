package checkpoint

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"evenkeel/checkpoint/internal/storage"
)

// File is an open checkpoint file. Begin, Write, Commit and Ready are for one goroutine, the one that trains; the
// others may be called beside them.
type File struct {
	copies  string // why a save may need new space, as measured at creation
	path    string
	storage Storage
	head    *header
	opts    Options
	index   map[string]int
	shared  []byte   // the arrays that share blocks, from sharedAt on; the writer's
	from    int64    // sharedAt
	bytes   int64    // length found when it was opened
	damage  []string // of superblocks and tables, found when it was opened
	lost    []string // what record pages lacked then

	mu       sync.Mutex
	changed  *sync.Cond
	slots    []slotState
	next     uint64 // sequence of the next save
	global   record // newest that all ranks are known to have
	note     note   // the newest; the writer's while saves are under way
	known    bool   // which slots verify is known: restored, verified, or none was committed
	open     *Save  // begun, neither committed nor aborted
	pending  []int  // per array: writes that have not yet read it
	staging  [][]byte
	staged   []bool // per array: its staging memory is still to be written
	failure  error  // of a save in the background, not yet returned
	stats    Stats
	pace     pace
	closed   bool
	queue    chan *job // to the writer, or with Staged to the copier before it
	finished sync.WaitGroup
}

// slotState is what the program knows of a slot.
type slotState struct {
	record    record
	committed bool
	poisoned  bool
	busy      bool
	clean     bool // its free marker is durable; the writer's while it is busy
}

// Stats counts what a File did since it was opened.
type Stats struct {
	Committed, Skipped int
	Waited             time.Duration // in Ready, and in Begin for a slot
}

// Create makes a checkpoint file for these arrays, of fixed size, and opens it. It is an error if the file exists.
// Its space on the disk is reserved before Create returns. A creation that is interrupted leaves PATH.creating,
// which the next one overwrites.
func Create(path string, arrays []Array, o Options) (*File, error) {
	f, err := create(path, arrays, o)
	if err != nil {
		return nil, fmt.Errorf("create checkpoint %s: %w", path, err)
	}
	return f, nil
}

func create(path string, arrays []Array, o Options) (*File, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%w; open it, or choose another name", fs.ErrExist)
	}
	if err := errors.Join(o.Validate(), check(arrays)); err != nil {
		return nil, err
	}
	disk, publish, err := storage.CreateDisk(path)
	if err != nil {
		return nil, err
	}
	var f *File
	s := Storage(disk)
	if o.DAX {
		s, err = storage.OpenDAX(disk)
	}
	if err == nil {
		f, err = CreateOn(s, arrays, o)
	}
	if err == nil {
		if err = publish(); err != nil {
			f.Close()
		}
	}
	if err != nil {
		_ = os.Remove(disk.Name()) // the error that counts is returned
		disk.Close()
		return nil, err
	}
	f.path = path
	if c, ok := any(disk).(interface{ CopiesOnWrite() string }); ok && !o.DAX {
		f.copies = c.CopiesOnWrite()
	}
	return f, nil
}

// CreateOn makes a checkpoint file on a storage, which the File closes.
func CreateOn(s Storage, arrays []Array, o Options) (*File, error) {
	if err := errors.Join(o.Validate(), check(arrays)); err != nil {
		return nil, err
	}
	id := o.ID
	if id == [16]byte{} {
		_, _ = rand.Read(id[:]) // never fails
	}
	h := plan(arrays, o, id)
	if err := s.Allocate(h.size, o.Progress); err != nil {
		return nil, err
	}
	table := h.table()
	super := h.superblock(table)
	for _, w := range []struct {
		data []byte
		at   int64
	}{{table, h.tables[0]}, {table, h.tables[1]}, {super, 0}, {super, block}} {
		if err := writeFull(s, w.data, w.at); err != nil {
			return nil, err
		}
	}
	first := note{generation: 1}
	if err := writeNotes(s, h, first); err != nil {
		return nil, err
	}
	for slot := range h.slots {
		if err := markFree(s, h, slot, first); err != nil {
			return nil, err
		}
	}
	if err := s.Flush(); err != nil {
		return nil, err
	}
	f, err := newFile(s, h, o, nil)
	if err == nil {
		for i := range f.slots {
			f.slots[i].clean = true
		}
	}
	return f, err
}

// Open opens a checkpoint file. Arrays, if any are given, must be the file's, in any order (ErrSchema names the first
// that differs). Before the first Begin, restore what the file holds.
func Open(path string, arrays []Array, o Options) (*File, error) {
	s, err := openStorage(path, o)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", path, err)
	}
	f, err := OpenOn(s, arrays, o)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("open checkpoint %s: %w", path, err)
	}
	f.path = path
	return f, nil
}

func openStorage(path string, o Options) (Storage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file: %w", ErrFormat)
	}
	d, err := storage.OpenDisk(path, !o.ReadOnly)
	if err != nil || !o.DAX || o.ReadOnly {
		return d, err
	}
	s, err := storage.OpenDAX(d)
	if err != nil {
		d.Close()
		return nil, err
	}
	return s, nil
}

// OpenOn opens a checkpoint file on a storage, which the File closes.
func OpenOn(s Storage, arrays []Array, o Options) (*File, error) {
	if o.Mode > Staged || o.WhenFull > Fail {
		return nil, o.Validate()
	}
	h, damage, err := readHeader(s)
	if err != nil {
		return nil, err
	}
	if len(arrays) > 0 {
		if err := sameArrays(arrays, h.arrays); err != nil {
			return nil, err
		}
	}
	return newFile(s, h, o, damage)
}

// pastFrom is the room in slots from which on a file is written past the page cache (decision 34).
const pastFrom = 256 << 20

// newFile reads the commit records and starts what works in the background.
func newFile(s Storage, h *header, o Options, damage []string) (*File, error) {
	f := &File{storage: s, head: h, opts: o, damage: damage, index: map[string]int{}, next: 1, known: true,
		slots: make([]slotState, h.slots), pending: make([]int, len(h.arrays))}
	f.changed = sync.NewCond(&f.mu)
	f.pace.hurry = make(chan struct{}, 1)
	for i, a := range h.arrays {
		f.index[a.Name] = i
	}
	size, err := s.Size()
	if err != nil {
		return nil, err
	}
	f.bytes = size
	if p, ok := s.(storage.Bypass); ok && !o.ReadOnly && h.size-h.firstSlot >= pastFrom {
		_ = p.PastCache() // where it cannot be had, the cache does
	}
	found := f.readPages()
	f.note, f.lost = found.note, found.damage()
	f.next = f.note.sequence + 1
	for i, p := range found.pages {
		// What lies beyond the end of the file is not written: its blocks are not reserved.
		f.slots[i] = slotState{record: p.record, committed: p.committed, poisoned: h.slot(i)+h.slotSize > size}
		f.next = max(f.next, p.record.sequence+1)
		f.known = f.known && !p.committed
	}
	f.known = f.known && f.empty(found) == nil
	if o.ReadOnly {
		return f, nil
	}
	if err := f.repair(); err != nil {
		return nil, err
	}
	// One save queues at most every array and its end, and at most every slot is being saved to.
	f.queue = make(chan *job, h.slots*(len(h.arrays)+1))
	f.from = h.sharedAt()
	f.shared = make([]byte, h.manifestAt-f.from)
	writing := f.queue
	if o.Mode == Staged {
		f.staging, f.staged = make([][]byte, len(h.arrays)), make([]bool, len(h.arrays))
		writing = make(chan *job, cap(f.queue))
		f.finished.Go(func() { f.copyAll(f.queue, writing) })
	}
	f.finished.Go(func() { f.writeAll(writing) })
	return f, nil
}

// repair writes the copies of superblock and table that do not verify again, from those that do.
func (f *File) repair() error {
	if len(f.damage) == 0 {
		return nil
	}
	table := f.head.table()
	super := f.head.superblock(table)
	for i := range 2 {
		if err := writeFull(f.storage, super, int64(i)*block); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		if err := writeFull(f.storage, table, f.head.tables[i]); err != nil {
			return fmt.Errorf("repair: %w", err)
		}
		if err := f.storage.Flush(); err != nil { // before the other copy is touched
			return fmt.Errorf("repair: %w", err)
		}
	}
	return nil
}

// lastNote has the note durable. It is only a witness: what fails here is no error.
func (f *File) lastNote() {
	n := f.note
	if n.sequence == 0 {
		return
	}
	if f.global.sequence > n.global {
		n.generation, n.global, n.globalStep = n.generation+1, f.global.sequence, f.global.step
		if f.storage.Flush() != nil || writeNotes(f.storage, f.head, n) != nil {
			return
		}
	}
	_ = f.storage.Flush()
}

// Arrays describes the file's arrays, without data, in file order.
func (f *File) Arrays() []Array { return append([]Array(nil), f.head.arrays...) }

// Info describes a file.
type Info struct {
	ID        string `json:"id"` // the same in the files of all ranks
	Rank      int    `json:"rank"`
	Ranks     int    `json:"ranks"`
	Arrays    int    `json:"arrays"`
	Bytes     int64  `json:"bytes"`      // of the arrays of one checkpoint
	FileBytes int64  `json:"file_bytes"` // fixed
	// CopiesOnWrite says that a save may fail for want of space, and why; known after Create only.
	CopiesOnWrite string `json:"copies_on_write,omitempty"`
	// Damage beside the slots', found when it was opened: copies of superblock and table, pages of records.
	Damage []string `json:"damage,omitempty"`
}

// Info returns the file's description.
func (f *File) Info() Info {
	h := f.head
	return Info{hex.EncodeToString(h.id[:]), h.rank, h.ranks, len(h.arrays), h.bytes(), h.size, f.copies, slices.Concat(f.damage, f.lost)}
}

// Path is the file's name, "" of a storage's.
func (f *File) Path() string { return f.path }

// Stats returns the counts so far.
func (f *File) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// Close waits for the saves under way, aborts one that was begun and not committed, and closes the storage. It
// returns any unreported error of an earlier save.
func (f *File) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	open := f.open
	f.mu.Unlock()
	if open != nil {
		open.Abort()
	}
	f.mu.Lock()
	f.closed = true
	f.pace.wait()
	f.mu.Unlock()
	if f.queue != nil {
		close(f.queue)
		f.finished.Wait()
		f.lastNote()
	}
	err := f.storage.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure != nil {
		err = f.failure
		f.failure = nil
	}
	if err != nil {
		return fmt.Errorf("close checkpoint %s: %w", f.path, err)
	}
	return nil
}
