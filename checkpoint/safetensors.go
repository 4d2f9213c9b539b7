package checkpoint

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A checkpoint as a safetensors file: what PyTorch and most other programs read. The state and the arrays' kinds
// stand in the header's metadata, which other programs ignore. https://github.com/huggingface/safetensors says the
// format.
const (
	maxHeader = 100 << 20 // as the reference implementation has it

	metaStep    = "evenkeel.step"
	metaCursor  = "evenkeel.cursor"
	metaRandom  = "evenkeel.random"
	metaScalars = "evenkeel.scalars"
	metaKinds   = "evenkeel.kinds"
)

type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// errByteOrder is returned on machines whose memory is not what safetensors holds.
var errByteOrder = errors.New("safetensors needs a little-endian machine")

func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// WriteSafetensors writes arrays, with their data, and a state. The same input gives the same bytes.
func WriteSafetensors(w io.Writer, arrays []Array, s State) error {
	if !littleEndian() {
		return errByteOrder
	}
	if err := check(arrays); err != nil {
		return err
	}
	order := slices.Clone(arrays)
	slices.SortFunc(order, func(a, b Array) int { // wide elements first keeps all of them aligned
		return cmp.Or(b.DType.Size()-a.DType.Size(), strings.Compare(a.Name, b.Name))
	})
	scalars, kinds := map[string]string{}, map[string]string{}
	for name, v := range s.Scalars { // JSON has no infinities: the bits
		scalars[name] = fmt.Sprintf("%016x", math.Float64bits(v))
	}
	header := map[string]any{}
	at := int64(0)
	for _, a := range order {
		if int64(len(a.Data)) != a.Len() {
			return fmt.Errorf("array %q: Data has %d bytes, must be %d: %w", a.Name, len(a.Data), a.Len(), ErrUsage)
		}
		if a.Name == "__metadata__" {
			return fmt.Errorf("array %q: safetensors keeps that name for itself: %w", a.Name, ErrUsage)
		}
		if a.Kind != Parameter {
			kinds[a.Name] = a.Kind.String()
		}
		header[a.Name] = tensorInfo{a.DType.String(), append([]int{}, a.Shape...), [2]int64{at, at + a.Len()}}
		at += a.Len()
	}
	meta := map[string]string{
		"format": "pt", metaStep: strconv.FormatUint(s.Step, 10), metaCursor: strconv.FormatUint(s.Cursor, 10), metaRandom: hex.EncodeToString(s.Random),
	}
	for key, v := range map[string]map[string]string{metaScalars: scalars, metaKinds: kinds} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		meta[key] = string(text)
	}
	header["__metadata__"] = meta
	text, err := json.Marshal(header) // sorts the keys
	if err != nil {
		return err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return fmt.Errorf("the header has %d bytes, at most %d are allowed: %w", len(text), maxHeader, ErrUsage)
	}
	buffered := bufio.NewWriterSize(w, chunk)
	if _, err := buffered.Write(append(le.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, a := range order {
		if _, err := buffered.Write(a.Data); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// ReadSafetensors reads what WriteSafetensors or another program wrote, size bytes of it. Arrays come in the order of
// their bytes; those of other programs are all Parameters, of step 0. The errors wrap ErrFormat.
func ReadSafetensors(r io.Reader, size int64) ([]Array, State, error) {
	fail := func(format string, args ...any) ([]Array, State, error) {
		return nil, State{}, fmt.Errorf("safetensors: "+format+": %w", append(args, ErrFormat)...)
	}
	if !littleEndian() {
		return nil, State{}, errByteOrder
	}
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return fail("header size: %v", err)
	}
	n := le.Uint64(length[:])
	if n < 2 || n > maxHeader || int64(n) > size-8 {
		return fail("a header of %d bytes in a file of %d; is it a safetensors file?", n, size)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return fail("header: %v", err)
	}
	arrays, state, total, err := parseSafetensors(text)
	if err != nil {
		return fail("%v", err)
	}
	if total != size-8-int64(n) {
		return fail("tensors of %d bytes, the file has %d for them; is it truncated?", total, size-8-int64(n))
	}
	for i, a := range arrays {
		arrays[i].Data = make([]byte, a.Len())
		if _, err := io.ReadFull(r, arrays[i].Data); err != nil {
			return fail("tensor %q: %v", a.Name, err)
		}
	}
	return arrays, state, nil
}

// parseSafetensors reads a header.
func parseSafetensors(text []byte) ([]Array, State, int64, error) {
	var header map[string]json.RawMessage
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, State{}, 0, fmt.Errorf("header: %w", err)
	}
	meta := map[string]string{}
	if raw, ok := header["__metadata__"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, State{}, 0, fmt.Errorf("header.__metadata__: %w", err)
		}
		delete(header, "__metadata__")
	}
	state, kinds, err := parseMeta(meta)
	if err != nil {
		return nil, State{}, 0, err
	}
	infos := make(map[string]tensorInfo, len(header))
	for name, raw := range header {
		var info tensorInfo
		if err := json.Unmarshal(raw, &info); err != nil {
			return nil, State{}, 0, fmt.Errorf("header.%s: %w", name, err)
		}
		infos[name] = info
	}
	names := slices.SortedFunc(maps.Keys(infos), func(a, b string) int {
		x, y := infos[a].Offsets, infos[b].Offsets
		return cmp.Or(slices.Compare(x[:], y[:]), strings.Compare(a, b))
	})
	var arrays []Array
	at := int64(0)
	for _, name := range names {
		info := infos[name]
		d, err := ParseDType(info.DType)
		if err != nil {
			return nil, State{}, 0, fmt.Errorf("header.%s: %w", name, err)
		}
		a := Array{Name: name, DType: d, Shape: info.Shape, Kind: Parameter}
		if k, ok := kinds[name]; ok {
			a.Kind = k
		}
		if a.Len() < 0 || info.Offsets != [2]int64{at, at + a.Len()} {
			return nil, State{}, 0, fmt.Errorf("header.%s: %s of shape %v is said to be at bytes %v, must begin at %d", name, info.DType, info.Shape, info.Offsets, at)
		}
		at += a.Len()
		arrays = append(arrays, a)
	}
	if err := check(arrays); err != nil {
		return nil, State{}, 0, err
	}
	return arrays, state, at, nil
}

// parseMeta reads the state and the kinds, where this program wrote them.
func parseMeta(meta map[string]string) (State, map[string]Kind, error) {
	s, kinds := State{Scalars: map[string]float64{}}, map[string]Kind{}
	if _, ok := meta[metaStep]; !ok {
		return s, kinds, nil
	}
	var err [5]error
	s.Step, err[0] = strconv.ParseUint(meta[metaStep], 10, 64)
	s.Cursor, err[1] = strconv.ParseUint(meta[metaCursor], 10, 64)
	s.Random, err[2] = hex.DecodeString(meta[metaRandom])
	var scalars, named map[string]string
	err[3] = json.Unmarshal([]byte(meta[metaScalars]), &scalars)
	err[4] = json.Unmarshal([]byte(meta[metaKinds]), &named)
	all := err[:]
	for name, hex := range scalars {
		bits, err := strconv.ParseUint(hex, 16, 64)
		s.Scalars[name], all = math.Float64frombits(bits), append(all, err)
	}
	for name, k := range named {
		i := slices.Index(kindNames[:], k)
		if i < 1 {
			all = append(all, fmt.Errorf("kind %q is not known", k))
			continue
		}
		kinds[name] = Kind(i)
	}
	if err := errors.Join(all...); err != nil {
		return State{}, nil, fmt.Errorf("header.__metadata__: %w", err)
	}
	return s, kinds, nil
}
