package ddqn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// parseHeader reads the JSON header of a policy file strictly: no key twice, no tensor missing or too many, each
// with the type, shape and place that the spec in the metadata asks for.
func parseHeader(text []byte) (spec Spec, meta map[string]string, checksum string, err error) {
	fail := func(sentinel error, format string, args ...any) (Spec, map[string]string, string, error) {
		return Spec{}, nil, "", fmt.Errorf(format+": %w", append(args, sentinel)...)
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
	if err := strictJSON([]byte(meta[keySpec]), &spec); err != nil {
		return fail(ErrFormat, "header.__metadata__.%s: %v", keySpec, err)
	}
	if err := spec.Validate(); err != nil {
		return fail(ErrFormat, "header.__metadata__.%s: %v", keySpec, err)
	}
	if err := matchTensors(header, spec); err != nil {
		return fail(ErrFormat, "%v", err)
	}
	checksum = meta[keyChecksum]
	for _, k := range reserved {
		delete(meta, k)
	}
	return spec, meta, checksum, nil
}

// matchTensors compares the tensors of a header with those that the spec asks for.
func matchTensors(header map[string]json.RawMessage, spec Spec) error {
	want := tensorTable(spec)
	for _, name := range tensorNames(spec) {
		raw, ok := header[name]
		if !ok {
			return fmt.Errorf("tensor %s is missing", name)
		}
		var got tensorInfo
		if err := strictJSON(raw, &got); err != nil {
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

// strictJSON decodes one value and nothing else, without unknown fields.
func strictJSON(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("text after the value")
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
