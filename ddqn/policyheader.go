package ddqn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/evenkeel/evenkeel/ddqn/internal/wire"
)

var networkName = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

// checkSpecs holds the networks of a file to the limits of the format.
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
