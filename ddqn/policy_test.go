package ddqn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

var policySpec = Spec{Features: 3, Actions: 2, Objectives: 2, Hidden: []int{4, 5}}

// policyBytes is a small valid policy file.
func policyBytes(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, newNet(t, policySpec, 1), map[string]string{"trained_on": "a test"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rebuild changes the header text and the tensor bytes of a policy, and corrects its sizes but not its checksum.
func rebuild(policy []byte, header func(string) string, data func([]byte) []byte) []byte {
	n := binary.LittleEndian.Uint64(policy)
	text, tensors := string(policy[8:8+n]), bytes.Clone(policy[8+n:])
	if header != nil {
		text = header(text)
	}
	if data != nil {
		tensors = data(tensors)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), tensors...)
}

func replaceOnce(t *testing.T, old, new string) func(string) string {
	return func(s string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("the header has no %q: %s", old, s)
		}
		return strings.Replace(s, old, new, 1)
	}
}

func TestPolicyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		net := drawNet(t)
		meta := rapid.MapOf(rapid.StringN(1, 10, -1), rapid.String()).Draw(t, "meta")
		for _, k := range reserved {
			delete(meta, k)
		}
		path := filepath.Join(dir, "policy.safetensors")
		if err := Save(path, net, meta); err != nil {
			t.Fatal(err)
		}
		got, gotMeta, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(net) || !maps.Equal(gotMeta, meta) {
			t.Fatalf("read %v %v, want %v %v", got.spec, gotMeta, net.spec, meta)
		}
		first, _ := os.ReadFile(path)
		if err := Save(path, got, gotMeta); err != nil {
			t.Fatal(err)
		}
		if second, _ := os.ReadFile(path); !bytes.Equal(first, second) {
			t.Fatal("the same weights gave other bytes")
		}
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v %v", left, err)
	}
}

func TestPolicyRefusesBadFiles(t *testing.T) {
	good := policyBytes(t)
	checksum := fmt.Sprintf("%016x", xxh3.Hash(good[8+binary.LittleEndian.Uint64(good):]))
	nan := func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[8:], math.Float32bits(float32(math.NaN())))
		return b
	}
	withNaN := rebuild(good, nil, nan)
	nanSum := fmt.Sprintf("%016x", xxh3.Hash(withNaN[8+binary.LittleEndian.Uint64(withNaN):]))
	header := func(old, new string) []byte { return rebuild(good, replaceOnce(t, old, new), nil) }
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":             {nil, ErrTruncated},
		"half a size":       {good[:5], ErrTruncated},
		"half a header":     {good[:100], ErrTruncated},
		"half the tensors":  {good[:len(good)-10], ErrTruncated},
		"no tensors":        {rebuild(good, nil, func([]byte) []byte { return nil }), ErrTruncated},
		"huge header":       {[]byte{255, 255, 255, 255, 255, 255, 255, 255, '{'}, ErrFormat},
		"text":              {[]byte("this is not a policy file at all"), ErrFormat},
		"trailing byte":     {append(bytes.Clone(good), 0), ErrFormat},
		"not JSON":          {header(`{`, `[`), ErrFormat},
		"text after header": {header(`}}`, `}} {}`), ErrFormat},
		"other format":      {header(policyFormat, "evenkeel-ddqn-other"), ErrFormat},
		"other version":     {header(`"format_version":"1"`, `"format_version":"2"`), ErrVersion},
		"version a number":  {header(`"format_version":"1"`, `"format_version":1`), ErrFormat},
		"no metadata":       {header("__metadata__", "metadata"), ErrFormat},
		"spec broken":       {header(`\"features\":3`, `\"features\":-3`), ErrFormat},
		"spec extended":     {header(`\"features\":3`, `\"features\":3,\"x\":1`), ErrFormat},
		"spec differs":      {header(`\"features\":3`, `\"features\":4`), ErrFormat},
		"spec enormous":     {header(`\"features\":3`, `\"features\":60000`), ErrFormat},
		"dtype":             {header(`"F32"`, `"F16"`), ErrFormat},
		"shape":             {header(`[4,5]`, `[5,4]`), ErrFormat},
		"offsets":           {header(`"data_offsets":[0,`, `"data_offsets":[4,`), ErrFormat},
		"tensor missing":    {header(`"hidden.0.bias"`, `"hidden.9.bias"`), ErrFormat},
		"tensor unknown":    {header(`{"__`, `{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__`), ErrFormat},
		"tensor twice":      {header(`"hidden.0.bias"`, `"hidden.0.weight":{},"hidden.0.bias"`), ErrFormat},
		"tensor field":      {header(`"dtype"`, `"x":1,"dtype"`), ErrFormat},
		"bit flipped":       {rebuild(good, nil, func(b []byte) []byte { b[3] ^= 1; return b }), ErrChecksum},
		"checksum missing":  {header(`"xxh3"`, `"xxh4"`), ErrChecksum},
		"NaN":               {rebuild(withNaN, replaceOnce(t, checksum, nanSum), nil), ErrNotFinite},
	} {
		path := filepath.Join(t.TempDir(), "p.safetensors")
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		net, _, err := Load(path)
		if !errors.Is(err, c.want) || net != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
	if _, _, err := Load("/does/not/exist"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestSaveRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.safetensors")
	net := newNet(t, policySpec, 1)
	if err := Save(path, net, map[string]string{"spec": "mine"}); !errors.Is(err, ErrFormat) {
		t.Errorf("reserved key: %v", err)
	}
	if err := Save(path, net, map[string]string{"x": strings.Repeat("x", maxHeader)}); !errors.Is(err, ErrFormat) {
		t.Errorf("huge metadata: %v", err)
	}
	net.weights[5] = float32(math.Inf(1))
	if err := Save(path, net, nil); !errors.Is(err, ErrNotFinite) {
		t.Errorf("infinite weight: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("something was written")
	}
	if err := Save(filepath.Join(t.TempDir(), "no", "dir"), newNet(t, policySpec, 1), nil); err == nil {
		t.Error("a folder that does not exist was accepted")
	}
}

func FuzzRead(f *testing.F) {
	good := policyBytes(f)
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte{})
	f.Add(rebuild(good, func(s string) string { return strings.Replace(s, `\"actions\":2`, `\"actions\":9999`, 1) }, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		net, meta, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Write(&b, net, meta); err != nil {
			t.Fatalf("cannot write what was read: %v", err)
		}
		again, _, err := Read(&b)
		if err != nil || !again.Equal(net) {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
