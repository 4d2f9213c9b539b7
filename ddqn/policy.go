package ddqn

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/zeebo/xxh3"

	"github.com/evenkeel/evenkeel/ddqn/internal/wire"
)

// A policy file is a safetensors file, described byte by byte in docs/reference/formats/policy.md.
const (
	policyFormat  = "evenkeel-ddqn-policy"
	policyVersion = "2"
	maxNetworks   = 16

	keyFormat   = "format"
	keyVersion  = "format_version"
	keySpec     = "spec"
	keyChecksum = "xxh3"
)

// reserved are the metadata keys that the format needs for itself.
var reserved = []string{keyFormat, keyVersion, keySpec, keyChecksum}

// tensorInfo is a tensor's entry in the header.
type tensorInfo struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// tensorTable names the tensors of these networks in file order, and describes them as the header must.
func tensorTable(specs map[string]Spec) (names []string, table map[string]tensorInfo) {
	table = make(map[string]tensorInfo)
	at := 0
	add := func(name string, n int, shape ...int) {
		names = append(names, name)
		table[name] = tensorInfo{"F32", shape, []int{at, at + 4*n}}
		at += 4 * n
	}
	for _, net := range slices.Sorted(maps.Keys(specs)) {
		w := specs[net].widths()
		for i := 1; i < len(w); i++ {
			layer := fmt.Sprintf("%s.hidden.%d", net, i-1)
			if i == len(w)-1 {
				layer = net + ".head"
			}
			add(layer+".weight", w[i-1]*w[i], w[i-1], w[i])
			add(layer+".bias", w[i], w[i])
		}
	}
	return names, table
}

// Save writes networks to a policy file: 1 to 16 of them, each under a name of 1 to 32 of a-z, 0-9 and _, with notes
// of the caller's in meta (nil will do). The file appears complete or not at all, and the same weights, names and
// notes give the same bytes. It is an error if a weight is not finite (ErrNotFinite), if there are too many networks
// or weights, or if meta uses one of the format's own keys: format, format_version, spec, xxh3 (ErrFormat).
func Save(path string, nets map[string]*Network, meta map[string]string) error {
	var buf bytes.Buffer
	if err := Write(&buf, nets, meta); err != nil {
		return fmt.Errorf("save policy %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		return fmt.Errorf("save policy %s: %w", path, err)
	}
	return nil
}

// Write writes what Save puts into a file.
func Write(w io.Writer, nets map[string]*Network, meta map[string]string) error {
	specs := make(map[string]Spec, len(nets))
	for name, net := range nets {
		specs[name] = net.spec
	}
	if err := checkSpecs(specs); err != nil {
		return fmt.Errorf("%w: %w", err, ErrFormat)
	}
	if err := checkFinite(nets); err != nil {
		return err
	}
	all := make(map[string]string, len(meta)+len(reserved))
	for k, v := range meta {
		all[k] = v
	}
	for _, k := range reserved {
		if _, taken := meta[k]; taken {
			return fmt.Errorf("metadata key %q belongs to the format; choose another: %w", k, ErrFormat)
		}
	}
	spec, err := json.Marshal(specs) // sorts the names
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(nets)) {
		data = wire.AppendFloats(data, nets[name].weights)
	}
	all[keyFormat], all[keyVersion], all[keySpec] = policyFormat, policyVersion, string(spec)
	all[keyChecksum] = fmt.Sprintf("%016x", xxh3.Hash(data))

	header := map[string]any{"__metadata__": all}
	_, table := tensorTable(specs)
	for name, info := range table {
		header[name] = info
	}
	text, err := json.Marshal(header) // sorts the keys
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > wire.MaxHeader {
		return fmt.Errorf("the header has %d bytes, at most %d are allowed; shorten the metadata: %w", len(text), wire.MaxHeader, ErrFormat)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	out = append(append(out, text...), data...)
	if _, err = w.Write(out); err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	return nil
}

// Load reads a policy file and returns its networks by name and the caller's notes. The errors wrap ErrFormat,
// ErrVersion, ErrTruncated, ErrNotFinite or ErrChecksum.
func Load(path string) (map[string]*Network, map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("load policy: %w", err)
	}
	defer f.Close() // only read from
	nets, meta, err := Read(bufio.NewReader(f))
	if err != nil {
		return nil, nil, fmt.Errorf("load policy %s: %w", path, err)
	}
	return nets, meta, nil
}

// Read reads a policy as Load does, from its first byte to the end of r; bytes.NewReader serves embedded files.
func Read(r io.Reader) (map[string]*Network, map[string]string, error) {
	var size [8]byte
	if err := wire.ReadFull(r, size[:], "the header size"); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n < 2 || n > wire.MaxHeader {
		return nil, nil, fmt.Errorf("header of %d bytes, at most %d are allowed; is this a policy file?: %w", n, wire.MaxHeader, ErrFormat)
	}
	text := make([]byte, n)
	if err := wire.ReadFull(r, text, "the header"); err != nil {
		return nil, nil, err
	}
	specs, meta, sum, err := parseHeader(text)
	if err != nil {
		return nil, nil, err
	}
	data := make([]byte, 4*parameters(specs))
	if err := wire.ReadFull(r, data, "the tensors"); err != nil {
		return nil, nil, err
	}
	if extra, err := io.ReadFull(r, size[:1]); extra != 0 {
		return nil, nil, fmt.Errorf("bytes after the last tensor; copy the file again: %w", ErrFormat)
	} else if err != io.EOF {
		return nil, nil, fmt.Errorf("read to the end: %w", err)
	}
	if got := fmt.Sprintf("%016x", xxh3.Hash(data)); got != sum {
		return nil, nil, fmt.Errorf("tensors have checksum %s, the header says %q; copy the file again: %w", got, sum, ErrChecksum)
	}
	nets := make(map[string]*Network, len(specs))
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		net := emptyNetwork(specs[name])
		wire.TakeFloats(net.weights, data)
		nets[name], data = net, data[4*len(net.weights):]
	}
	if err := checkFinite(nets); err != nil {
		return nil, nil, err
	}
	return nets, meta, nil
}

func checkFinite(nets map[string]*Network) error {
	for _, name := range slices.Sorted(maps.Keys(nets)) {
		w := nets[name].weights
		if i := wire.FirstNotFinite(w); i >= 0 {
			return fmt.Errorf("network %q: weight %d is %v; take an earlier checkpoint: %w", name, i, w[i], ErrNotFinite)
		}
	}
	return nil
}
