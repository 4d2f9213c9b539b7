package training

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"evenkeel/cluster/profile"
)

// tiny is the smallest training run.
var tiny = Config{Seed: 1, Steps: 2, Envs: 1, Updates: 1, Hidden: []int{1}}

// checkpointBytes is a checkpoint of tiny after one of its two sets of steps.
func checkpointBytes(t testing.TB) []byte {
	t.Helper()
	trainer, err := NewTrainer(profile.Embedded(), tiny)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.play(1); err != nil {
		t.Fatal(err)
	}
	if err := trainer.store(); err != nil {
		t.Fatal(err)
	}
	trainer.sets++
	path := filepath.Join(t.TempDir(), "checkpoint")
	if err := trainer.SaveCheckpoint(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// header splits a checkpoint into its JSON header and what follows the checksum.
func header(b []byte) (text, rest []byte) {
	size := int(binary.LittleEndian.Uint64(b[len(checkpointMagic):]))
	start := len(checkpointMagic) + 8
	return b[start : start+size], b[start+size+8:]
}

// assemble is the inverse, with the checksum that belongs to the header.
func assemble(text, rest []byte) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(checkpointMagic), uint64(len(text)))
	b = binary.LittleEndian.AppendUint64(append(b, text...), xxh3.Hash(text))
	return append(b, rest...)
}

func TestCheckpointRefusesEveryTruncation(t *testing.T) {
	whole := checkpointBytes(t)
	if _, err := readCheckpoint(profile.Embedded(), bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	text, _ := header(whole)
	cuts := []int{0, 7, 8, 15, 16, 16 + len(text), 23 + len(text), 24 + len(text), 32 + len(text), len(whole) - 1}
	for _, n := range cuts {
		if _, err := readCheckpoint(profile.Embedded(), bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(whole))
		}
	}
	catalogue := profile.Embedded()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, len(whole)-1).Draw(rt, "bytes")
		if _, err := readCheckpoint(catalogue, bytes.NewReader(whole[:n])); err == nil {
			rt.Fatalf("%d of %d bytes were accepted", n, len(whole))
		}
	})
}

// A header that is whole, has the right checksum and makes no sense.
func TestCheckpointRefusesNonsense(t *testing.T) {
	text, rest := header(checkpointBytes(t))
	path := filepath.Join(t.TempDir(), "checkpoint")
	for name, edit := range map[string]func(c *checkpoint){
		"no streams":       func(c *checkpoint) { c.Streams = nil },
		"more sets":        func(c *checkpoint) { c.Sets = 3 },
		"sets below zero":  func(c *checkpoint) { c.Sets = -1 },
		"short range":      func(c *checkpoint) { c.Low = c.Low[:5] },
		"no generator":     func(c *checkpoint) { c.PCG = nil },
		"no birth":         func(c *checkpoint) { c.Streams[0].Born = nil },
		"too few actions":  func(c *checkpoint) { c.Streams[0].Actions[0] = nil },
		"unknown action":   func(c *checkpoint) { c.Streams[0].Actions[0][0] = 255 },
		"endless episode":  func(c *checkpoint) { c.Streams[0].Actions = repeat(c.Streams[0].Actions[0], 10_000) },
		"another network":  func(c *checkpoint) { c.Config.Hidden = []int{2} },
		"another schedule": func(c *checkpoint) { c.Config.Steps = 4 },
		"bad config":       func(c *checkpoint) { c.Config.Explore = -1 },
		"envs left out": func(c *checkpoint) {
			c.Config.Envs, c.Config.Steps = 0, 0
			for len(c.Streams) < c.Config.withDefaults().Envs {
				c.Streams = append(c.Streams, c.Streams[0])
			}
		},
		"many envs": func(c *checkpoint) { c.Config.Envs, c.Config.Steps = 1<<40, 1<<41 },
	} {
		var c checkpoint
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		edit(&c)
		edited, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, assemble(edited, rest), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadCheckpoint(profile.Embedded(), path); !errors.Is(err, errCheckpoint) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want errCheckpoint and the path", name, err)
		}
	}
	if _, err := LoadCheckpoint(profile.Embedded(), path+"-none"); !errors.Is(err, os.ErrNotExist) || errors.Is(err, errCheckpoint) {
		t.Errorf("a missing file: %v", err)
	}
}

func repeat(actions []byte, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = actions
	}
	return all
}

// FuzzCheckpoint reads any bytes, and any header with the checksum that belongs to it.
func FuzzCheckpoint(f *testing.F) {
	whole := checkpointBytes(f)
	text, rest := header(whole)
	f.Add(whole[:40], []byte("{}"))
	f.Add([]byte(checkpointMagic+"\xff\xff\xff\xff\x00\x00\x00\x00"), text)
	f.Add([]byte{}, []byte(`{"config":{"steps":1,"envs":1},"streams":[{}]}`))
	catalogue := profile.Embedded()
	f.Fuzz(func(t *testing.T, file, text []byte) {
		for _, content := range [][]byte{file, assemble(text, rest)} {
			if tooBig(content) {
				continue
			}
			if trainer, err := readCheckpoint(catalogue, bytes.NewReader(content)); err == nil && trainer.sets > trainer.config.sets() {
				t.Fatalf("%d of %d sets are done", trainer.sets, trainer.config.sets())
			}
		}
	})
}

// tooBig says whether a header asks for a training run that takes long to set up: it
// is allowed to, and the fuzzer is not to wait for it.
func tooBig(content []byte) bool {
	if len(content) < 24 {
		return false
	}
	var c checkpoint
	size := binary.LittleEndian.Uint64(content[8:])
	if size > uint64(len(content)-24) || json.Unmarshal(content[16:16+size], &c) != nil {
		return false
	}
	weights := 64
	for _, h := range c.Config.Hidden {
		weights += max(h, 0)
	}
	return c.Config.withDefaults().Envs > 4 || weights > 1000
}
