package checkpoint

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// The files in internal/vectors hold Go and Python to the same bytes; python/tests/test_checkpoint.py reads them too.
func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../internal/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

func TestHashVectors(t *testing.T) {
	var file struct {
		Hashes []struct {
			Length int
			Hash   string
		}
	}
	readVectors(t, "xxh3.json", &file)
	if len(file.Hashes) < 40 {
		t.Fatalf("%d hashes", len(file.Hashes))
	}
	for _, v := range file.Hashes {
		b := make([]byte, v.Length)
		for i := range b {
			b[i] = byte(i*131 + i>>8)
		}
		if got := fmt.Sprintf("%016x", hash(b)); got != v.Hash {
			t.Errorf("%d bytes: %s, want %s", v.Length, got, v.Hash)
		}
	}
}

func TestPageVectors(t *testing.T) {
	var file struct {
		ID      string
		Records []struct {
			Slot           int
			Sequence, Step uint64
			ManifestLength int64  `json:"manifest_length"`
			ManifestHash   uint64 `json:"manifest_hash"`
			Bytes          string
		}
		Markers []struct {
			Slot           int
			Sequence, Step uint64
			Bytes          string
		}
		Notes []struct {
			Slot                       int
			Generation, Sequence, Step uint64
			AllSequence                uint64 `json:"all_sequence"`
			AllStep                    uint64 `json:"all_step"`
			At                         int64
			Bytes                      string
		}
		Arrays []struct {
			Name  string
			DType string
			Kind  string
			Shape []int
		}
		Table string
	}
	readVectors(t, "checkpoint-pages.json", &file)
	var id [16]byte
	if b, err := hex.DecodeString(file.ID); err != nil || copy(id[:], b) != 16 {
		t.Fatal(file.ID, err)
	}
	same := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	word := func(body []byte, word uint64) string { return hex.EncodeToString(le.AppendUint64(body, word)) }
	for _, r := range file.Records {
		same("record", word(record{r.Slot, r.Sequence, r.Step, r.ManifestLength, r.ManifestHash}.encode(id)), r.Bytes)
	}
	for _, m := range file.Markers {
		same("marker", word(freeMarker(id, m.Slot, note{sequence: m.Sequence, step: m.Step})), m.Bytes)
	}
	for _, n := range file.Notes {
		at, b := note{n.Generation, n.Sequence, n.Step, n.AllSequence, n.AllStep, ""}.encode(id, n.Slot)
		same("note", hex.EncodeToString(b), n.Bytes)
		if at != n.At {
			t.Errorf("note at %d, want %d", at, n.At)
		}
	}
	var arrays []Array
	for _, a := range file.Arrays {
		d, err := ParseDType(a.DType)
		if err != nil {
			t.Fatal(err)
		}
		kind := Parameter
		for kind.String() != a.Kind {
			kind++
		}
		arrays = append(arrays, Array{Name: a.Name, DType: d, Kind: kind, Shape: a.Shape})
	}
	same("table", hex.EncodeToString(plan(arrays, Options{}, id).table()), file.Table)
	if len(file.Records) == 0 || len(file.Markers) == 0 || len(file.Notes) == 0 {
		t.Error("no vectors")
	}
}
