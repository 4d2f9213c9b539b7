package ddqn

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/google/renameio/v2"
	"github.com/zeebo/xxh3"
)

// A policy file is a safetensors file, described byte by byte in docs/formats/policy.md.
const (
	policyFormat  = "evenkeel-ddqn-policy"
	policyVersion = "1"
	// maxHeader bounds what a reader takes into memory before it knows anything about a file.
	maxHeader = 1 << 20

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

// tensorNames lists the tensors of a network in file order: a weight and a bias for every layer.
func tensorNames(s Spec) []string {
	var names []string
	for i := range s.Hidden {
		p := "hidden." + strconv.Itoa(i)
		names = append(names, p+".weight", p+".bias")
	}
	return append(names, "head.weight", "head.bias")
}

// tensorTable is the header that a network of this shape must have, without its metadata.
func tensorTable(s Spec) map[string]tensorInfo {
	table := make(map[string]tensorInfo)
	names, w, at := tensorNames(s), s.widths(), 0
	add := func(name string, n int, shape ...int) {
		table[name] = tensorInfo{"F32", shape, []int{at, at + 4*n}}
		at += 4 * n
	}
	for i := 1; i < len(w); i++ {
		add(names[2*i-2], w[i-1]*w[i], w[i-1], w[i])
		add(names[2*i-1], w[i], w[i])
	}
	return table
}

// Save writes the network to a policy file, with notes of the caller's in meta (nil will do). The file appears
// complete or not at all, and the same weights and notes give the same bytes. It is an error if a weight is not
// finite (ErrNotFinite) or if meta uses one of the format's own keys: format, format_version, spec, xxh3.
func Save(path string, net *Network, meta map[string]string) error {
	var buf bytes.Buffer
	if err := Write(&buf, net, meta); err != nil {
		return fmt.Errorf("save policy %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, buf.Bytes(), 0o644); err != nil {
		return fmt.Errorf("save policy %s: %w", path, err)
	}
	return nil
}

// Write writes what Save puts into a file.
func Write(w io.Writer, net *Network, meta map[string]string) error {
	if i := firstNotFinite(net.weights); i >= 0 {
		return fmt.Errorf("weight %d is %v; take an earlier checkpoint: %w", i, net.weights[i], ErrNotFinite)
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
	spec, err := json.Marshal(net.spec)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	data := appendFloats(nil, net.weights)
	all[keyFormat], all[keyVersion], all[keySpec] = policyFormat, policyVersion, string(spec)
	all[keyChecksum] = fmt.Sprintf("%016x", xxh3.Hash(data))

	header := map[string]any{"__metadata__": all}
	for name, info := range tensorTable(net.spec) {
		header[name] = info
	}
	text, err := json.Marshal(header) // sorts the keys
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return fmt.Errorf("the header has %d bytes, at most %d are allowed; shorten the metadata: %w", len(text), maxHeader, ErrFormat)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	out = append(append(out, text...), data...)
	if _, err = w.Write(out); err != nil {
		return fmt.Errorf("write policy: %w", err)
	}
	return nil
}

// Load reads a policy file and returns the network and the caller's notes. The errors wrap ErrFormat, ErrVersion,
// ErrTruncated, ErrNotFinite or ErrChecksum.
func Load(path string) (*Network, map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("load policy: %w", err)
	}
	defer f.Close() // only read from
	net, meta, err := Read(bufio.NewReader(f))
	if err != nil {
		return nil, nil, fmt.Errorf("load policy %s: %w", path, err)
	}
	return net, meta, nil
}

// Read reads a policy as Load does, from its first byte to the end of r; bytes.NewReader serves embedded files.
func Read(r io.Reader) (*Network, map[string]string, error) {
	var size [8]byte
	if err := readFull(r, size[:], "the header size"); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n < 2 || n > maxHeader {
		return nil, nil, fmt.Errorf("header of %d bytes, at most %d are allowed; is this a policy file?: %w", n, maxHeader, ErrFormat)
	}
	text := make([]byte, n)
	if err := readFull(r, text, "the header"); err != nil {
		return nil, nil, err
	}
	spec, meta, sum, err := parseHeader(text)
	if err != nil {
		return nil, nil, err
	}
	net := emptyNetwork(spec)
	data := make([]byte, 4*len(net.weights))
	if err := readFull(r, data, "the tensors"); err != nil {
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
	takeFloats(net.weights, data)
	if i := firstNotFinite(net.weights); i >= 0 {
		return nil, nil, fmt.Errorf("weight %d is %v; take an earlier checkpoint: %w", i, net.weights[i], ErrNotFinite)
	}
	return net, meta, nil
}

// readFull fills buf; an early end is ErrTruncated.
func readFull(r io.Reader, buf []byte, what string) error {
	n, err := io.ReadFull(r, buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%d of %d bytes of %s; copy the file again: %w", n, len(buf), what, ErrTruncated)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

func appendFloats(dst []byte, values []float32) []byte {
	for _, v := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

func takeFloats(dst []float32, data []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}
