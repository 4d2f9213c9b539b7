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

	"evenkeel/ddqn/internal/wire"
)

var policySpec = Spec{Features: 3, Actions: 2, Objectives: 2, Hidden: []int{4, 5}}

// policyBytes is a small valid policy file.
func policyBytes(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	nets := map[string]*Network{"nodes": newNet(t, policySpec, 1), "a_2": newNet(t, Spec{Features: 1, Actions: 2, Objectives: 1}, 2)}
	if err := Write(&b, nets, map[string]string{"trained_on": "a test"}); err != nil {
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

func sameNets(a, b map[string]*Network) bool { return maps.EqualFunc(a, b, (*Network).Equal) }

func TestPolicyRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		nets := rapid.MapOfN(rapid.StringMatching(networkName.String()), rapid.Custom(drawNet), 1, maxNetworks).Draw(t, "networks")
		meta := rapid.MapOf(rapid.StringN(1, 10, -1), rapid.String()).Draw(t, "meta")
		for _, k := range reserved {
			delete(meta, k)
		}
		path := filepath.Join(dir, "policy.safetensors")
		if err := Save(path, nets, meta); err != nil {
			t.Fatal(err)
		}
		got, gotMeta, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if !sameNets(got, nets) || !maps.Equal(gotMeta, meta) {
			t.Fatalf("read %v %v, want %v %v", got, gotMeta, nets, meta)
		}
		first, _ := os.ReadFile(path)
		if err := Save(path, got, gotMeta); err != nil {
			t.Fatal(err)
		}
		if second, _ := os.ReadFile(path); !bytes.Equal(first, second) {
			t.Fatal("the same networks gave other bytes")
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
		"other version":     {header(`"format_version":"2"`, `"format_version":"3"`), ErrVersion},
		"older version":     {header(`"format_version":"2"`, `"format_version":"1"`), ErrVersion},
		"version a number":  {header(`"format_version":"2"`, `"format_version":1`), ErrFormat},
		"no metadata":       {header("__metadata__", "metadata"), ErrFormat},
		"spec broken":       {header(`\"features\":3`, `\"features\":-3`), ErrFormat},
		"spec extended":     {header(`\"features\":3`, `\"features\":3,\"x\":1`), ErrFormat},
		"spec differs":      {header(`\"features\":3`, `\"features\":4`), ErrFormat},
		"spec enormous":     {header(`\"features\":3`, `\"features\":60000`), ErrFormat},
		"spec missing":      {header(`"spec"`, `"specs"`), ErrFormat},
		"name differs":      {header(`\"a_2\"`, `\"a_3\"`), ErrFormat},
		"dtype":             {header(`"F32"`, `"F16"`), ErrFormat},
		"shape":             {header(`[4,5]`, `[5,4]`), ErrFormat},
		"offsets":           {header(`"data_offsets":[0,`, `"data_offsets":[4,`), ErrFormat},
		"tensor missing":    {header(`"nodes.hidden.0.bias"`, `"nodes.hidden.9.bias"`), ErrFormat},
		"tensor unknown":    {header(`{"__`, `{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__`), ErrFormat},
		"tensor twice":      {header(`"nodes.hidden.0.bias"`, `"nodes.hidden.0.weight":{},"nodes.hidden.0.bias"`), ErrFormat},
		"tensor field":      {header(`"dtype"`, `"x":1,"dtype"`), ErrFormat},
		"bit flipped":       {rebuild(good, nil, func(b []byte) []byte { b[3] ^= 1; return b }), ErrChecksum},
		"checksum missing":  {header(`"xxh3"`, `"xxh4"`), ErrChecksum},
		"NaN":               {rebuild(withNaN, replaceOnce(t, checksum, nanSum), nil), ErrNotFinite},
	} {
		path := filepath.Join(t.TempDir(), "p.safetensors")
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		nets, _, err := Load(path)
		if !errors.Is(err, c.want) || nets != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", name, err)
		}
	}
	if _, _, err := Load("/does/not/exist"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestPolicyRefusesBadSpecs(t *testing.T) {
	one, large := `{"features":1,"actions":1,"objectives":1,"hidden":[]}`, `{"features":4095,"actions":4095,"objectives":1,"hidden":[]}`
	many := make([]string, maxNetworks+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"n%d":%s`, i, one)
	}
	for specs, want := range map[string]string{
		`[]`:                                    "not a JSON object",
		`{"nodes":` + one + `} {}`:              "text after the object",
		`{"nodes":null}`:                        `network "nodes": spec.features is 0`,
		`{"nodes":{"x":1}}`:                     `network "nodes": json: unknown field "x"`,
		`{}`:                                    "0 networks, must be 1 to 16",
		"{" + strings.Join(many, ",") + "}":     "17 networks, must be 1 to 16",
		`{"a":` + large + `,"b":` + large + `}`: "33554432 weights together",
		`{"":` + one + `}`:                      `network "": a name must be`,
		`{"` + strings.Repeat("n", 33) + `":` + one + `}`: `nnn": a name must be`,
		`{"a.b":` + one + `}`:                             `network "a.b": a name must be`,
		`{"a":` + one + `,"a":` + one + `}`:               `key "a" comes twice`,
	} {
		_, _, err := Read(bytes.NewReader(rebuild(policyBytes(t), func(string) string {
			return fmt.Sprintf(`{"__metadata__":{"format":%q,"format_version":"2","spec":%q}}`, policyFormat, specs)
		}, nil)))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", specs, err, want)
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.safetensors")
	net := newNet(t, policySpec, 1)
	nets := map[string]*Network{"nodes": net}
	if err := Save(path, nets, map[string]string{"spec": "mine"}); !errors.Is(err, ErrFormat) {
		t.Errorf("reserved key: %v", err)
	}
	if err := Save(path, nets, map[string]string{"x": strings.Repeat("x", wire.MaxHeader)}); !errors.Is(err, ErrFormat) {
		t.Errorf("huge metadata: %v", err)
	}
	many := make(map[string]*Network)
	for i := range maxNetworks + 1 {
		many[fmt.Sprint(i)] = net
	}
	large := emptyNetwork(Spec{Features: 4095, Actions: 4095, Objectives: 1})
	for name, bad := range map[string]map[string]*Network{
		"none": nil, "too many": many, "a bad name": {"Nodes": net}, "too many weights": {"a": large, "b": large},
	} {
		if err := Save(path, bad, nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	net.weights[5] = float32(math.Inf(1))
	if err := Save(path, nets, nil); !errors.Is(err, ErrNotFinite) {
		t.Errorf("infinite weight: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("something was written")
	}
	if err := Save(filepath.Join(t.TempDir(), "no", "dir"), map[string]*Network{"nodes": newNet(t, policySpec, 1)}, nil); err == nil {
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
		nets, meta, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Write(&b, nets, meta); err != nil {
			t.Fatalf("cannot write what was read: %v", err)
		}
		again, _, err := Read(&b)
		if err != nil || !sameNets(again, nets) {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
