package checkpoint

import "fmt"

// The commit order. A slot's record is in one of three states: committed, free, or being replaced, its word 0. These
// are all writes that change what a reader believes, and all flushes; what stands on both sides of a flush must not be
// swapped:
//
//	free:    marker                                   | flush    no old record may vouch for the new bytes
//	write:   arrays, any order
//	commit:  manifest                                 | flush    all that the record vouches for is durable
//	         record; marker of the slot that is next  | flush    the record is there or not
//	         notes                                             durable with the next flush
//
// A record or marker is written as: word 0 | fence | body | fence | word. The checkpoint is reported only after the last
// flush. A save never writes to the newest committed slot, so that slot is whole at every moment. The next slot is freed
// together with the record and needs no flush of its own: a save takes two flushes.

// freeSlot takes back a slot's commit.
func freeSlot(s Storage, h *header, slot int, last note) error {
	err := markFree(s, h, slot, last)
	if err == nil {
		err = s.Flush()
	}
	if err != nil {
		return fmt.Errorf("free slot %d: %w", slot, err)
	}
	return nil
}

// commitSlot makes a slot whose arrays are written a checkpoint, and frees the one that is next, if that is not -1.
func commitSlot(s Storage, h *header, r record, manifest []byte, next int, last note) (record, error) {
	r.manifestLen, r.manifestSum = int64(len(manifest)), hash(manifest)
	body, word := r.encode(h.id)
	for _, do := range []struct {
		what string
		do   func() error
	}{
		{"manifest", func() error { return writeFull(s, manifest, h.slot(r.slot)+h.manifestAt) }},
		{"flush arrays", s.Flush},
		{"record", func() error { return writeRecord(s, h.record(r.slot), body, word) }},
		{"free the next slot", func() error {
			if next < 0 {
				return nil
			}
			return markFree(s, h, next, last)
		}},
		{"flush record", s.Flush},
	} {
		if err := do.do(); err != nil {
			return record{}, fmt.Errorf("commit slot %d: %s: %w", r.slot, do.what, err)
		}
	}
	return r, nil
}
