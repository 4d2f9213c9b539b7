package ddqn

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/zeebo/xxh3"

	"evenkeel/ddqn/internal/wire"
	"evenkeel/internal/badinput"
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

// Save writes networks to a policy file: 1 to 16 of them, each under a name of 1 to 32 of a-z, 0-9 and _, with the
// caller's notes in meta (may be nil). The file appears complete or not at all, and the same weights, names and
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
	maps.Copy(all, meta)
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

// Read reads a policy file from r, to its end, as Load does.
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

var networkName = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

// checkSpecs returns an error if the networks of a file exceed the limits of the format.
func checkSpecs(specs map[string]Spec) error {
	if n := len(specs); n < 1 || n > maxNetworks {
		return fmt.Errorf("%d networks, must be 1 to %d", n, maxNetworks)
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if !networkName.MatchString(name) {
			return fmt.Errorf("network %q: a name must be 1 to 32 of a-z, 0-9 and _", name)
		}
		if err := specs[name].validate(); err != nil {
			return fmt.Errorf("network %q: %w", name, err)
		}
	}
	if n := parameters(specs); n > maxParameters {
		return fmt.Errorf("networks of %d weights together, at most %d are supported: use smaller layers", n, maxParameters)
	}
	return nil
}

// parameters is the number of weights of all networks together.
func parameters(specs map[string]Spec) int {
	n := 0
	for _, s := range specs {
		n += s.parameters()
	}
	return n
}

// parseHeader reads the JSON header of a policy file strictly: no key twice, no tensor missing or too many, each
// with the type, shape and place that the specs in the metadata ask for.
func parseHeader(text []byte) (specs map[string]Spec, meta map[string]string, checksum string, err error) {
	fail := func(sentinel error, format string, args ...any) (map[string]Spec, map[string]string, string, error) {
		return nil, nil, "", fmt.Errorf(format+": %w", append(args, sentinel)...)
	}
	header, err := jsonObject(text)
	if err != nil {
		return fail(ErrFormat, "header: %v; is this a policy file?", err)
	}
	rawMeta, ok := header["__metadata__"]
	if !ok {
		return fail(ErrFormat, "header has no __metadata__; only files that evenkeel wrote can be read")
	}
	delete(header, "__metadata__")
	values, err := jsonObject(rawMeta)
	if err != nil {
		return fail(ErrFormat, "header.__metadata__: %v", err)
	}
	meta = make(map[string]string, len(values))
	for k, raw := range values {
		var v *string
		if err := json.Unmarshal(raw, &v); err != nil || v == nil {
			return fail(ErrFormat, "header.__metadata__.%s is not a string", k)
		}
		meta[k] = *v
	}
	if got := meta[keyFormat]; got != policyFormat {
		return fail(ErrFormat, "header.__metadata__.%s is %q, must be %q; only files that evenkeel wrote can be read", keyFormat, got, policyFormat)
	}
	if got := meta[keyVersion]; got != policyVersion {
		return fail(ErrVersion, "policy has format version %q, this program reads %q; train again or use the evenkeel that wrote it", got, policyVersion)
	}
	rawSpecs, err := jsonObject([]byte(meta[keySpec]))
	if err != nil {
		return fail(ErrFormat, "header.__metadata__.%s: %v", keySpec, err)
	}
	specs = make(map[string]Spec, len(rawSpecs))
	for _, name := range slices.Sorted(maps.Keys(rawSpecs)) {
		var s Spec
		if err := wire.StrictJSON(rawSpecs[name], &s); err != nil {
			return fail(ErrFormat, "header.__metadata__.%s: network %q: %v", keySpec, name, err)
		}
		specs[name] = s
	}
	if err := checkSpecs(specs); err != nil {
		return fail(ErrFormat, "header.__metadata__.%s: %v", keySpec, err)
	}
	if err := matchTensors(header, specs); err != nil {
		return fail(ErrFormat, "%v", err)
	}
	checksum = meta[keyChecksum]
	for _, k := range reserved {
		delete(meta, k)
	}
	return specs, meta, checksum, nil
}

// matchTensors compares the tensors of a header with those that the specs ask for.
func matchTensors(header map[string]json.RawMessage, specs map[string]Spec) error {
	names, want := tensorTable(specs)
	for _, name := range names {
		raw, ok := header[name]
		if !ok {
			return fmt.Errorf("tensor %s is missing", name)
		}
		var got tensorInfo
		if err := wire.StrictJSON(raw, &got); err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		w := want[name]
		if got.DType != w.DType {
			return fmt.Errorf("tensor %s has dtype %q, must be %q", name, got.DType, w.DType)
		}
		if !slices.Equal(got.Shape, w.Shape) {
			return fmt.Errorf("tensor %s has shape %v, must be %v", name, got.Shape, w.Shape)
		}
		if !slices.Equal(got.Offsets, w.Offsets) {
			return fmt.Errorf("tensor %s is at bytes %v, must be at %v", name, got.Offsets, w.Offsets)
		}
	}
	for name := range header {
		if _, ok := want[name]; !ok {
			return fmt.Errorf("tensor %q is unknown", name)
		}
	}
	return nil
}

// jsonObject decodes one object and nothing else, and refuses a key that comes twice, of which encoding/json would
// silently take the second.
func jsonObject(text []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object")
	}
	object := make(map[string]json.RawMessage)
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string) // the decoder takes nothing else for a key
		if _, twice := object[key]; twice {
			return nil, fmt.Errorf("key %q comes twice", key)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		object[key] = raw
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("text after the object")
	}
	return object, nil
}

// Errors that callers can tell apart with errors.Is. They come wrapped with the place, what is wrong and the remedy.
// Those of files are bad input.
var (
	// ErrFormat: the file is not of this format, or contradicts itself.
	ErrFormat = badinput.New("ddqn: not a valid file")
	// ErrVersion: the file is of this format but of a version that this program cannot read.
	ErrVersion = badinput.New("ddqn: unsupported version")
	// ErrTruncated: the file ends too early.
	ErrTruncated = wire.ErrTruncated
	// ErrNotFinite: a weight, a loss or a gradient is NaN or infinite.
	ErrNotFinite = errors.New("ddqn: value is not finite")
	// ErrChecksum: the content is not what was written.
	ErrChecksum = badinput.New("ddqn: checksum does not match")
	// ErrMismatch: two shapes or configurations that must be equal differ.
	ErrMismatch = errors.New("ddqn: shapes or configurations differ")
)
