package checkpoint

import "fmt"

// The commit order. A slot is in one of two states: free, its commit word 0, or committed, its word the checksum of
// the record. These are all writes that change what a reader believes, and all flushes; what stands on both sides of
// a flush must not be swapped:
//
//	free:    commit word = 0            | flush    no old record may vouch for the new bytes
//	write:   arrays, any order
//	commit:  manifest                   | flush    all that the record vouches for is durable
//	         record | fence | commit word | flush  the word is 8 bytes: it is there or not
//
// Only then is the checkpoint reported. The slot is never the newest committed one, so that one is whole at
// every moment.

// freeSlot takes back a slot's commit.
func freeSlot(s Storage, h *header, slot int) error {
	if err := writeFull(s, make([]byte, 8), h.record(slot)+wordAt); err != nil {
		return fmt.Errorf("free slot %d: %w", slot, err)
	}
	if err := s.Flush(); err != nil {
		return fmt.Errorf("free slot %d: %w", slot, err)
	}
	return nil
}

// commitSlot makes a slot whose arrays are written a checkpoint.
func commitSlot(s Storage, h *header, slot int, sequence uint64, step uint64, manifest []byte) (record, error) {
	r := record{slot, sequence, step, int64(len(manifest)), hash(manifest)}
	body, word := r.encode(h.id)
	at := h.record(slot)
	for _, do := range []struct {
		what string
		do   func() error
	}{
		{"manifest", func() error { return writeFull(s, manifest, h.slot(slot)+h.manifestAt) }},
		{"flush arrays", s.Flush},
		{"record", func() error { return writeFull(s, body, at) }},
		{"fence", s.Fence},
		{"commit word", func() error { return writeFull(s, le.AppendUint64(nil, word), at+wordAt) }},
		{"flush record", s.Flush},
	} {
		if err := do.do(); err != nil {
			return record{}, fmt.Errorf("commit slot %d: %s: %w", slot, do.what, err)
		}
	}
	return r, nil
}
