package checkpoint

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
)

// State is the part of a checkpoint that is not arrays.
type State struct {
	Step    uint64 // of training; any number that the program counts by
	Cursor  uint64 // position in the data
	Random  []byte // states of random generators, as the program encodes them
	Scalars map[string]float64
	Nonce   uint32 // of the save, below 1<<31, the same in the files of all ranks; Set draws it, 0: none
}

// encodeManifest gives the hashes and the state of a checkpoint. later: another was reported before it.
func encodeManifest(id [16]byte, sequence uint64, hashes []uint64, s State, later bool) []byte {
	flags := int(s.Nonce) << 1
	if later {
		flags |= 1
	}
	b := append([]byte(manifestMagic), id[:]...)
	for _, v := range []uint64{sequence, s.Step, s.Cursor} {
		b = le.AppendUint64(b, v)
	}
	for _, n := range []int{len(hashes), len(s.Scalars), len(s.Random), flags} {
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
	s = State{Step: le.Uint64(b[32:]), Cursor: le.Uint64(b[40:]), Scalars: map[string]float64{}, Nonce: le.Uint32(b[60:]) >> 1}
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
