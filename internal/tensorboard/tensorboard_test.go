package tensorboard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// golden was made by hand from the specifications of TFRecord and protocol buffers,
// with a bitwise CRC-32C, not by this package.
var golden = []string{
	// wall_time 1700000000.5, file_version "brain.Event:2"
	"1800000000000000a37f4b22" + "0900002040fc54d9411a0d627261696e2e4576656e743a32" + "2b353110",
	// wall_time, step 300, summary { value { tag "loss", simple_value 0.25 } }
	"1b000000000000001a0d9e13" + "0900002040fc54d94110ac022a0d0a0b0a046c6f7373150000803e" + "c5f6859b",
	// wall_time, step 300, session_log { status START }
	"100000000000000095fbfe18" + "0900002040fc54d94110ac023a020801" + "b94512a3",
}

var noon = time.Unix(1_700_000_000, 500_000_000)

func write(t *testing.T) []byte {
	t.Helper()
	w, err := Create(t.TempDir(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Scalars(noon, 300, Scalar{"loss", 0.25}); err != nil {
		t.Fatal(err)
	}
	if err := w.Restart(noon, 300); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(w.Name())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenBytes(t *testing.T) {
	want, err := hex.DecodeString(strings.Join(golden, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := write(t); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
	events, err := readAll(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	wall := 1700000000.5
	if d := cmp.Diff([]Event{
		{Seconds: wall, Version: "brain.Event:2"},
		{Seconds: wall, Step: 300, Scalars: []Scalar{{"loss", 0.25}}},
		{Seconds: wall, Step: 300, Restart: true},
	}, events); d != "" {
		t.Error(d)
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	for range 3 { // of the same second
		w, err := Create(dir, noon)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.1700000000.*"))
	if err != nil || len(files) != 3 {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Create(filepath.Join(dir, "missing"), noon); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

// Every damage is noticed: no byte is without a checksum.
func TestReadDamaged(t *testing.T) {
	good := write(t)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := readAll(bytes.NewReader(bad)); !errors.Is(err, errFormat) {
			t.Errorf("byte %d flipped: %v", i, err)
		}
	}
	ends := map[int]bool{40: true, 83: true, len(good): true} // after a whole record
	for n := range good {
		if _, err := readAll(bytes.NewReader(good[:n])); !ends[n] && !errors.Is(err, errFormat) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

// FuzzRead frames whatever it is given as a message, since few inputs would pass the
// checksums; what Read takes must be what the writer would write.
func FuzzRead(f *testing.F) {
	first := Event{Seconds: 1, Version: version}
	for _, e := range []Event{
		{}, {Seconds: math.NaN()}, {Step: math.MaxInt64, Restart: true},
		{Seconds: 2, Step: 5, Scalars: []Scalar{{"a/b", -1}, {"", float32(math.Inf(1))}}},
	} {
		f.Add(e.encode(), []byte{})
	}
	f.Add([]byte{eventSummary, 0}, []byte{1, 2, 3})
	f.Add([]byte{eventSummary, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, record(nil))
	f.Fuzz(func(t *testing.T, message, rest []byte) {
		file := append(record(first.encode()), record(message)...)
		file = append(file, rest...)
		events, err := readAll(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, errFormat) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		var again []byte
		for _, e := range events {
			again = append(again, record(e.encode())...)
		}
		if !bytes.Equal(again, file) {
			t.Errorf("read %+v of %x", events, file)
		}
	})
}
