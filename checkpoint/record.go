package checkpoint

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/zeebo/xxh3"
)

// State is the part of a checkpoint that is not arrays.
type State struct {
	Step    uint64 // of training; any number that the program counts by
	Cursor  uint64 // position in the data
	Random  []byte // states of random generators, as the program encodes them
	Scalars map[string]float64
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
	case magic != recordMagic && (magic != freeMagic || h.version < 2), [16]byte(b[8:24]) != h.id, r.slot != slot:
		return record{}, false, fmt.Errorf("commit record is another file's or another slot's: %w", ErrCorrupt)
	case magic == freeMagic:
		return record{}, false, nil
	case r.sequence == 0, r.manifestLen < manifestHead, r.manifestLen > h.manifestSize:
		return record{}, false, fmt.Errorf("commit record holds impossible numbers: %w", ErrCorrupt)
	}
	return r, true, nil
}

// encodeManifest gives the hashes and the state of a checkpoint. later: another was reported before it.
func encodeManifest(id [16]byte, sequence uint64, hashes []uint64, s State, later bool) []byte {
	prior := 0
	if later {
		prior = 1
	}
	b := append([]byte(manifestMagic), id[:]...)
	for _, v := range []uint64{sequence, s.Step, s.Cursor} {
		b = le.AppendUint64(b, v)
	}
	for _, n := range []int{len(hashes), len(s.Scalars), len(s.Random), prior} {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, v := range hashes {
		b = le.AppendUint64(b, v)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Scalars)) {
		b = le.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
		b = le.AppendUint64(b, math.Float64bits(s.Scalars[name]))
	}
	return append(b, s.Random...)
}

// parseManifest decodes a manifest whose hash was checked.
func parseManifest(b []byte, h *header, r record) (hashes []uint64, s State, err error) {
	bad := func(what string) ([]uint64, State, error) {
		return nil, State{}, fmt.Errorf("manifest: %s: %w", what, ErrCorrupt)
	}
	if len(b) < manifestHead || string(b[:8]) != manifestMagic || !bytes.Equal(b[8:24], h.id[:]) {
		return bad("not this file's")
	}
	s = State{Step: le.Uint64(b[32:]), Cursor: le.Uint64(b[40:]), Scalars: map[string]float64{}}
	arrays, scalars, random := int(le.Uint32(b[48:])), int(le.Uint32(b[52:])), int(le.Uint32(b[56:]))
	if le.Uint64(b[24:]) != r.sequence || s.Step != r.step {
		return bad("of another checkpoint than its record")
	}
	b = b[manifestHead:]
	if arrays != len(h.arrays) || len(b) < 8*arrays {
		return bad("number of arrays differs")
	}
	for i := range arrays {
		hashes = append(hashes, le.Uint64(b[8*i:]))
	}
	b = b[8*arrays:]
	for range scalars {
		if len(b) < 2 || len(b) < 10+int(le.Uint16(b)) {
			return bad("ends within the scalars")
		}
		n := int(le.Uint16(b))
		s.Scalars[string(b[2:2+n])] = math.Float64frombits(le.Uint64(b[2+n:]))
		b = b[10+n:]
	}
	if len(b) != random {
		return bad("length differs")
	}
	s.Random = bytes.Clone(b)
	return hashes, s, nil
}

// checkState holds a state to what the file has room for.
func (h *header) checkState(s State) error {
	need := int64(manifestHead + 8*len(h.arrays) + len(s.Random))
	for name := range s.Scalars {
		if len(name) > maxNameBytes {
			return fmt.Errorf("scalar %.40q...: its name has %d bytes, at most %d: %w", name, len(name), maxNameBytes, ErrUsage)
		}
		need += int64(10 + len(name))
	}
	if need > h.manifestSize {
		return fmt.Errorf("state needs %d bytes, the file has room for %d; create it with a larger Options.StateBytes: %w", need, h.manifestSize, ErrUsage)
	}
	return nil
}
