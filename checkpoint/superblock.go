package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"evenkeel/checkpoint/internal/storage"
)

// The file, docs/reference/formats/checkpoint.md:
//
//	superblock A | superblock B | record of slot 0 | ... | table A | table B | slot 0 | slot 1 | ...
//
// A slot holds the arrays, each aligned to a block, then those smaller than a block, which share blocks, then its manifest.
const (
	block     = storage.Block
	slotAlign = 2 << 20 // what a processor maps in one piece
	version   = 2       // 3 if blocks are shared
	packAlign = 16
	nativeOne = 0x01020304 // written in the machine's byte order

	superMagic    = "EVKLCKPT"
	superLen      = 128
	endianAt      = 12
	recordMagic   = "EVKLRECD"
	wordAt        = 64 // of the commit word in a record
	manifestMagic = "EVKLMANI"
	manifestHead  = 64
)

var le = binary.LittleEndian

// header is what a file says of itself: superblock and table.
type header struct {
	id           [16]byte // of all ranks' files alike
	rank, ranks  int
	slots        int
	arrays       []Array // without data
	offsets      []int64 // of the arrays, within a slot
	tableLen     int64
	tables       [2]int64
	firstSlot    int64
	slotSize     int64
	manifestAt   int64 // within a slot
	manifestSize int64 // room for it
	size         int64 // of the file
}

// plan lays out a file.
func plan(arrays []Array, o Options, id [16]byte) *header {
	h := &header{id: id, rank: o.Rank, ranks: o.ranks(), slots: o.slots()}
	at := int64(0)
	for _, small := range []bool{false, true} {
		for _, a := range arrays {
			if n := a.Len(); n < block == small {
				a.Data = nil
				h.arrays = append(h.arrays, a)
				h.offsets = append(h.offsets, at)
				at = align(at+n, map[bool]int64{false: block, true: packAlign}[small])
			}
		}
	}
	at = align(at, block)
	h.manifestAt = at
	h.manifestSize = align(manifestHead+8*int64(len(arrays))+int64(cmp.Or(o.StateBytes, 64<<10)), block)
	h.slotSize = align(at+h.manifestSize, slotAlign)
	h.tableLen = int64(len(h.table()))
	h.tables[0] = h.record(h.slots)
	h.tables[1] = align(h.tables[0]+h.tableLen, block)
	h.firstSlot = align(h.tables[1]+h.tableLen, slotAlign)
	h.size = h.firstSlot + int64(h.slots)*h.slotSize
	return h
}

// record is the place of a slot's commit record.
func (h *header) record(slot int) int64 { return int64(2+slot) * block }

// slot is the place of a slot.
func (h *header) slot(slot int) int64 { return h.firstSlot + int64(slot)*h.slotSize }

// sharedAt is where in a slot arrays begin to share blocks, else where the manifest is.
func (h *header) sharedAt() int64 {
	for i, at := range h.offsets {
		if at%block != 0 {
			return h.offsets[i-1]
		}
	}
	return h.manifestAt
}

// bytes is what a checkpoint's arrays take.
func (h *header) bytes() int64 {
	n := int64(0)
	for _, a := range h.arrays {
		n += a.Len()
	}
	return n
}

// table encodes the arrays.
func (h *header) table() []byte {
	var b []byte
	for i, a := range h.arrays {
		b = le.AppendUint16(b, uint16(len(a.Name)))
		b = append(b, a.Name...)
		b = append(b, byte(a.DType), byte(a.Kind), byte(len(a.Shape)))
		for _, d := range a.Shape {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(b, uint64(h.offsets[i]))
		b = le.AppendUint64(b, uint64(a.Len()))
	}
	return b
}

// superblock encodes the rest.
func (h *header) superblock(table []byte) []byte {
	b := append(make([]byte, 0, block), superMagic...)
	v := uint32(version)
	if h.sharedAt() < h.manifestAt {
		v++
	}
	b = le.AppendUint32(b, v)
	b = binary.NativeEndian.AppendUint32(b, nativeOne)
	b = append(b, h.id[:]...)
	for _, v := range []int{h.rank, h.ranks, h.slots, len(h.arrays)} {
		b = le.AppendUint32(b, uint32(v))
	}
	for _, v := range []uint64{
		uint64(h.tableLen), xxh3.Hash(table), uint64(h.tables[0]), uint64(h.tables[1]), uint64(h.firstSlot),
		uint64(h.slotSize), uint64(h.manifestAt), uint64(h.manifestSize), uint64(h.size),
	} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, xxh3.Hash(b)) // 128 bytes
	return b[:block]
}

// readHeader reads a file's head, from whichever copies of superblock and table verify. damage says which do not.
func readHeader(s Storage) (h *header, damage []string, err error) {
	size, err := s.Size()
	if err != nil {
		return nil, nil, err
	}
	if size < block { // most likely another sort of file
		b := make([]byte, min(size, 8))
		if n, err := s.ReadAt(b, 0); n < len(b) {
			return nil, nil, err
		}
		if string(b) != superMagic {
			return nil, nil, fmt.Errorf("%d bytes that begin with %q, not with %q: %w", size, b, superMagic, ErrFormat)
		}
	}
	var found []*header
	var first error
	for i, name := range []string{"superblock A", "superblock B"} {
		got, lost, err := readCopy(s, int64(i)*block, size)
		if err != nil {
			damage = append(damage, fmt.Sprintf("%s: %v", name, err))
			if first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		found = append(found, got)
		if h == nil {
			h = got
			damage = append(damage, lost...)
		}
	}
	if h == nil {
		return nil, damage, first
	}
	if len(found) == 2 && !bytes.Equal(found[0].superblock(found[0].table()), found[1].superblock(found[1].table())) {
		if h, err = theirs(s, found); err != nil {
			return nil, damage, err
		}
		damage = append(damage, "one of the superblocks is another file's")
	}
	if size < h.size {
		damage = append(damage, fmt.Sprintf("%d of %d bytes; the file is truncated, the slots that it cuts are lost", size, h.size))
	}
	return h, damage, nil
}

// readCopy reads one superblock and its table, from whichever copy of that verifies.
func readCopy(s Storage, at, size int64) (*header, []string, error) {
	b, err := readAll(s, block, at, size)
	if err != nil {
		return nil, nil, err
	}
	h, hash, err := parseSuperblock(b)
	if err != nil {
		return nil, nil, err
	}
	table, damage, err := readTable(s, h, hash, size)
	if err != nil {
		return nil, damage, err
	}
	if err := h.parseTable(table); err != nil {
		return nil, damage, err
	}
	return h, damage, nil
}

// theirs chooses between two sound superblocks that differ: the one whose id the record pages carry.
func theirs(s Storage, found []*header) (*header, error) {
	var votes [2]int
	for i, h := range found {
		for slot := range h.slots {
			b := make([]byte, pageLen)
			if _, err := s.ReadAt(b, h.record(slot)); err != nil {
				continue
			}
			if string(b[:4]) == recordMagic[:4] && [16]byte(b[8:24]) == h.id {
				votes[i]++
			}
		}
	}
	switch {
	case votes[0] > votes[1]:
		return found[0], nil
	case votes[1] > votes[0]:
		return found[1], nil
	}
	return nil, fmt.Errorf("superblocks A and B are of different files: %w", ErrCorrupt)
}

// readTable reads whichever copy of the table has the right hash.
func readTable(s Storage, h *header, hash uint64, size int64) (table []byte, damage []string, err error) {
	for i, name := range []string{"table A", "table B"} {
		b, err := readAll(s, h.tableLen, h.tables[i], size)
		if err == nil && xxh3.Hash(b) != hash {
			err = fmt.Errorf("checksum differs: %w", ErrCorrupt)
		}
		if err != nil {
			damage = append(damage, fmt.Sprintf("%s: %v", name, err))
		} else if table == nil {
			table = b
		}
	}
	if table == nil {
		return nil, damage, fmt.Errorf("both tables of arrays are lost: %w", ErrCorrupt)
	}
	return table, damage, nil
}

// readAll reads n bytes, after it has seen that the file can have them.
func readAll(s Storage, n, at, size int64) ([]byte, error) {
	if at+n > size {
		return nil, fmt.Errorf("the file ends at byte %d, before byte %d: %w", size, at+n, ErrCorrupt)
	}
	b := make([]byte, n)
	if _, err := s.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, at, err)
	}
	return b, nil
}

// parseSuperblock decodes and checks one copy.
func parseSuperblock(b []byte) (h *header, tableHash uint64, err error) {
	if string(b[:8]) != superMagic {
		return nil, 0, fmt.Errorf("begins with %q, not with %q: %w", b[:8], superMagic, ErrFormat)
	}
	sum := le.Uint64(b[superLen-8:]) == xxh3.Hash(b[:superLen-8])
	v := le.Uint32(b[8:])
	if v != version && v != version+1 && (sum || v < 1<<16) {
		return nil, 0, fmt.Errorf("version %d, this program reads %d and %d; use the evenkeel that wrote it: %w", v, version, version+1, ErrVersion)
	}
	if one := binary.NativeEndian.Uint32(b[endianAt:]); one == 0x04030201 {
		return nil, 0, fmt.Errorf("written on a machine of the other byte order; export it there: %w", ErrEndian)
	}
	if !sum {
		return nil, 0, fmt.Errorf("checksum differs: %w", ErrCorrupt)
	}
	h = &header{id: [16]byte(b[16:32])}
	h.rank, h.ranks, h.slots = int(le.Uint32(b[32:])), int(le.Uint32(b[36:])), int(le.Uint32(b[40:]))
	arrays := int64(le.Uint32(b[44:]))
	h.tableLen, tableHash = int64(le.Uint64(b[48:])), le.Uint64(b[56:])
	for i, p := range []*int64{&h.tables[0], &h.tables[1], &h.firstSlot, &h.slotSize, &h.manifestAt, &h.manifestSize, &h.size} {
		*p = int64(le.Uint64(b[64+8*i:]))
		if *p < 0 || *p > maxSize || *p%block != 0 {
			return nil, 0, fmt.Errorf("superblock field at byte %d is %d: %w", 64+8*i, *p, ErrFormat)
		}
	}
	switch {
	case h.ranks < 1 || h.rank >= h.ranks,
		h.slots < 2 || h.slots > MaxSlots,
		arrays < 1 || arrays > maxArrays,
		h.tableLen < 20*arrays || h.tableLen > maxTable,
		h.tables[0] < h.record(h.slots) || h.tables[1] < h.tables[0]+h.tableLen || h.firstSlot < h.tables[1]+h.tableLen,
		h.manifestSize < manifestHead+8*arrays || h.slotSize < h.manifestAt+h.manifestSize,
		h.size != h.firstSlot+int64(h.slots)*h.slotSize:
		return nil, 0, fmt.Errorf("superblock is inconsistent: %w", ErrFormat)
	}
	h.arrays = make([]Array, arrays)
	return h, tableHash, nil
}

// parseTable decodes the table into arrays and offsets.
func (h *header) parseTable(b []byte) error {
	bad := func(i int, what string) error {
		return fmt.Errorf("table of arrays: array %d: %s: %w", i, what, ErrFormat)
	}
	end := int64(0)
	for i := range h.arrays {
		if len(b) < 2 || len(b) < 2+int(le.Uint16(b))+3 {
			return bad(i, "the table ends")
		}
		n := int(le.Uint16(b))
		a := Array{Name: string(b[2 : 2+n])}
		b = b[2+n:]
		dims := int(b[2])
		a.DType, a.Kind, a.Shape = DType(b[0]), Kind(b[1]), make([]int, dims)
		b = b[3:]
		if len(b) < 8*dims+16 {
			return bad(i, "the table ends")
		}
		for d := range a.Shape {
			a.Shape[d] = int(le.Uint64(b[8*d:]))
		}
		at, length := int64(le.Uint64(b[8*dims:])), int64(le.Uint64(b[8*dims+8:]))
		b = b[8*dims+16:]
		if length != a.Len() || at < end || at%block != 0 && (length >= block || at != align(end, packAlign)) || at > h.manifestAt-length {
			return bad(i, fmt.Sprintf("%q: %d bytes at %d", a.Name, length, at))
		}
		if end = at + length; length >= block {
			end = align(end, block)
		}
		h.arrays[i] = a
		h.offsets = append(h.offsets, at)
	}
	if len(bytes.TrimRight(b, "\x00")) != 0 {
		return bad(len(h.arrays), "bytes after the last array")
	}
	if err := check(h.arrays); err != nil {
		return fmt.Errorf("table of arrays: %w: %w", err, ErrFormat)
	}
	return nil
}
