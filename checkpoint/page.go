package checkpoint

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// A record page says three things of its slot: the commit record, or a free marker, signed in the same way; and two copies
// of a note, written by turns, of the newest save that was reported. A page of zeros is neither: it is damage.
const (
	freeMagic = "EVKLFREE"
	noteMagic = "EVKLNOTE"
	noteAt    = 512 // a sector for each copy
	noteLen   = 72  // then its checksum
	pageLen   = noteAt + 2*noteAt
)

// note is repeated on every record page, so that a lost record is detected.
type note struct {
	generation   uint64 // counts notes; the largest is the newest
	sequence     uint64 // of the newest save that was reported; 0: none
	step         uint64
	global       uint64 // of the newest that all ranks were known to have
	globalStep   uint64
	contradicted string // what the pages lack that the note tells of; not stored
}

// encode gives the note's place in a slot's page, and its bytes.
func (n note) encode(id [16]byte, slot int) (at int64, b []byte) {
	b = append([]byte(noteMagic), id[:]...)
	for _, v := range []uint64{uint64(slot), n.generation, n.sequence, n.step, n.global, n.globalStep} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, xxh3.Hash(b)|1)
	return noteAt + int64(n.generation%2)*noteAt, b
}

// parseNote takes the newer of a page's copies.
func parseNote(b []byte, h *header, slot int) (n note, err error) {
	found := false
	for at := noteAt; at < pageLen; at += noteAt {
		c := b[at : at+noteLen+8]
		if xxh3.Hash(c[:noteLen])|1 != le.Uint64(c[noteLen:]) || string(c[:8]) != noteMagic || [16]byte(c[8:24]) != h.id || le.Uint64(c[24:]) != uint64(slot) {
			continue
		}
		m := note{generation: le.Uint64(c[32:]), sequence: le.Uint64(c[40:]), step: le.Uint64(c[48:]), global: le.Uint64(c[56:]), globalStep: le.Uint64(c[64:])}
		if !found || m.generation > n.generation {
			n, found = m, true
		}
	}
	if !found {
		return note{}, fmt.Errorf("neither copy of its note verifies: %w", ErrCorrupt)
	}
	return n, nil
}

// record is a slot's commit record, without the commit word.
type record struct {
	slot        int
	sequence    uint64 // counts commits, from 1
	step        uint64
	manifestLen int64
	manifestSum uint64
}

// encode gives the body, and the commit word that makes it count.
func (r record) encode(id [16]byte) (body []byte, word uint64) {
	return sign(recordMagic, id, uint64(r.slot), r.sequence, r.step, uint64(r.manifestLen), r.manifestSum)
}

// parseRecord decodes a slot's record; committed is false where the slot holds no checkpoint.
func parseRecord(b []byte, h *header, slot int) (r record, committed bool, err error) {
	word := le.Uint64(b[wordAt:])
	if word == 0 {
		return record{}, false, unsigned(b, h, slot)
	}
	if xxh3.Hash(b[:wordAt])|1 != word {
		return record{}, false, fmt.Errorf("commit record: checksum differs: %w", ErrCorrupt)
	}
	magic := string(b[:8])
	r = record{int(le.Uint64(b[24:])), le.Uint64(b[32:]), le.Uint64(b[40:]), int64(le.Uint64(b[48:])), le.Uint64(b[56:])}
	switch {
	case magic != recordMagic && magic != freeMagic, [16]byte(b[8:24]) != h.id, r.slot != slot:
		return record{}, false, fmt.Errorf("commit record is another file's or another slot's: %w", ErrCorrupt)
	case magic == freeMagic:
		return record{}, false, nil
	case r.sequence == 0, r.manifestLen < manifestHead, r.manifestLen > h.manifestSize:
		return record{}, false, fmt.Errorf("commit record holds impossible numbers: %w", ErrCorrupt)
	}
	return r, true, nil
}

// unsigned is an error where a record whose word is 0 is not one that was being replaced.
func unsigned(b []byte, h *header, slot int) error {
	magic := string(b[:8])
	if magic != recordMagic && magic != freeMagic || [16]byte(b[8:24]) != h.id || le.Uint64(b[24:]) != uint64(slot) {
		return fmt.Errorf("commit record: neither a checkpoint nor signed as free: %w", ErrCorrupt)
	}
	return nil
}

// freeMarker is what a free slot's record says.
func freeMarker(id [16]byte, slot int, last note) (body []byte, word uint64) {
	return sign(freeMagic, id, uint64(slot), last.sequence, last.step, 0, 0)
}

// sign gives a record's body, and the word that makes it count.
func sign(magic string, id [16]byte, fields ...uint64) (body []byte, word uint64) {
	b := append([]byte(magic), id[:]...)
	for _, v := range fields {
		b = le.AppendUint64(b, v)
	}
	return b, xxh3.Hash(b) | 1 // never 0
}

// slotPage is what a record page was found to say.
type slotPage struct {
	record    record
	committed bool
	err       error // the record is damaged
	noteErr   error
}

// survey is what all pages say together.
type survey struct {
	pages []slotPage
	note  note
}

// readPages reads all record pages. A writer may be at work beside a reader: what looks contradictory is read again.
func (f *File) readPages() survey {
	var s survey
	for range 3 {
		if s = f.readPagesOnce(); s.note.contradicted == "" || !f.opts.ReadOnly {
			break
		}
	}
	return s
}

func (f *File) readPagesOnce() survey {
	h := f.head
	s := survey{pages: make([]slotPage, h.slots)}
	newest := uint64(0)
	for i := range s.pages {
		p := &s.pages[i]
		b := make([]byte, pageLen)
		if _, p.err = f.storage.ReadAt(b, h.record(i)); p.err != nil {
			p.err = fmt.Errorf("commit record: %w", p.err)
			continue
		}
		p.record, p.committed, p.err = parseRecord(b, h, i)
		if p.err == nil && h.slot(i)+h.slotSize > f.bytes {
			p.committed, p.err = false, fmt.Errorf("the file ends at byte %d, within the slot: %w", f.bytes, ErrCorrupt)
		}
		newest = max(newest, p.record.sequence)
		n, err := parseNote(b, h, i)
		if p.noteErr = err; err == nil && n.generation > s.note.generation {
			s.note = n
		}
	}
	if s.note.sequence > newest {
		s.note.contradicted = fmt.Sprintf("the save of step %d (number %d) was reported, and its record is gone", s.note.step, s.note.sequence)
	}
	return s
}

// damage is what the survey shows beside damaged records.
func (s survey) damage() []string {
	var out []string
	for i, p := range s.pages {
		if p.noteErr != nil {
			out = append(out, fmt.Sprintf("record page of slot %d: %v", i, p.noteErr))
		}
	}
	if s.note.contradicted != "" {
		out = append(out, s.note.contradicted)
	}
	return out
}

// empty is nil where the file provably never held a checkpoint.
func (f *File) empty(s survey) error {
	for i, p := range s.pages {
		switch {
		case p.err != nil:
			return fmt.Errorf("slot %d: %w", i, p.err)
		case p.noteErr != nil:
			return fmt.Errorf("slot %d: %w", i, p.noteErr)
		}
	}
	if s.note.sequence > 0 {
		return fmt.Errorf("%s: %w", s.note.contradicted, ErrCorrupt)
	}
	for i := range s.pages {
		b := make([]byte, manifestHead)
		if _, err := f.storage.ReadAt(b, f.head.slot(i)+f.head.manifestAt); err != nil {
			return fmt.Errorf("slot %d: manifest: %w", i, err)
		}
		if string(b[:8]) == manifestMagic && [16]byte(b[8:24]) == f.head.id && b[60]&1 != 0 {
			return fmt.Errorf("no record says that anything was saved, but slot %d holds the manifest of step %d; if this run never "+
				"finished a save, move the file away and start again: %w", i, le.Uint64(b[32:]), ErrCorrupt)
		}
	}
	return nil
}

// writeRecord replaces a record: at no moment do old and new bytes verify together.
func writeRecord(s Storage, at int64, body []byte, word uint64) error {
	for _, do := range []struct {
		what string
		do   func() error
	}{
		{"clear commit word", func() error { return writeFull(s, make([]byte, 8), at+wordAt) }},
		{"fence", s.Fence},
		{"record", func() error { return writeFull(s, body, at) }},
		{"fence", s.Fence},
		{"commit word", func() error { return writeFull(s, le.AppendUint64(nil, word), at+wordAt) }},
	} {
		if err := do.do(); err != nil {
			return fmt.Errorf("%s: %w", do.what, err)
		}
	}
	return nil
}

// markFree writes a slot's free marker, without a flush.
func markFree(s Storage, h *header, slot int, last note) error {
	body, word := freeMarker(h.id, slot, last)
	return writeRecord(s, h.record(slot), body, word)
}

// writeNotes writes a note to all pages, without a flush. Since the note before it there was one: of two copies one is
// whole at every moment.
func writeNotes(s Storage, h *header, n note) error {
	for slot := range h.slots {
		at, b := n.encode(h.id, slot)
		if err := writeFull(s, b, h.record(slot)+at); err != nil {
			return fmt.Errorf("note of slot %d: %w", slot, err)
		}
	}
	return nil
}
