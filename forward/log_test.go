package forward

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// logged runs with a log and returns it, with the weights' hash at the end.
func logged(t testing.TB, c *Config) (log []byte, want string) {
	t.Helper()
	net := network3(t)
	var b bytes.Buffer
	all := runAll(t, c, net, NewMemory(), func(p *Processor) {
		if p.Rank == 0 {
			encoded, err := p.Header.Encode()
			if err != nil {
				t.Fatal(err)
			}
			b.Write(encoded)
			p.OnBlock = func(_ *Block, encoded []byte) error { b.Write(encoded); return nil }
		}
	})
	return b.Bytes(), all[0].Weights.Hash()
}

func TestReplayGivesTheSameBits(t *testing.T) {
	c := testConfig(8, 4, 150)
	c.Guard = true
	log, want := logged(t, c)
	r, err := NewLogReader(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Header.Drawn() // by the log alone
	if err != nil {
		t.Fatal(err)
	}
	if done, err := Replay(r, w, 0); err != nil || done.Steps() != 150 || !done.Done() || w.Hash() != want {
		t.Errorf("%v, %s, want %s", err, w.Hash(), want)
	}
	if len(log) > 150*18+2000 {
		t.Errorf("the log takes %d bytes", len(log))
	}
}

// A processor that goes on after some blocks ends with everybody's weights.
func TestGoesOnAfterBlocks(t *testing.T) {
	net, c := network3(t), testConfig(6, 3, 200)
	c.Guard = true
	memory := NewMemory()
	var blocks [][]byte
	var at []uint64
	all := runAll(t, c, net, memory, func(p *Processor) {
		if p.Rank == 0 {
			p.OnBlock = func(b *Block, encoded []byte) error {
				blocks, at = append(blocks, encoded), append(at, b.Position)
				return nil
			}
		}
	})
	for n := range blocks {
		r := replicaOf(t, c, net, all[0].Data.Len())
		for _, b := range blocks[:n+1] {
			if _, err := r.Apply(b); err != nil {
				t.Fatal(err)
			}
		}
		bus := memory.Reader(2).(*memoryReader)
		bus.at = int(at[n]) - 1
		p := &Processor{Replica: r, Rank: 2, Data: all[0].Data, Bus: bus}
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Weights.Hash(), all[0].Weights.Hash(); got != want {
			t.Errorf("after %d blocks: %s, want %s", n+1, got, want)
		}
	}
}

// A log whose steps and checksums are right, and whose weights are others, is refused: hashes in it are those of weights.
func TestLogOfOtherWeights(t *testing.T) {
	log, _ := logged(t, testConfig(2, 1, 70))
	r, err := NewLogReader(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Header.Drawn()
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	forged := bytes.Clone(first)
	forged[len(forged)-chainBytes-1] ^= 1 // the last byte of the hash
	end := len(forged) - chainBytes
	copy(forged[end:], chain(r.Encoded[len(r.Encoded)-chainBytes:], forged[:end]))
	one, err := NewReplica(r.Encoded, w)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Apply(forged); !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), "after step 64") {
		t.Errorf("got %v", err)
	}
}

// The first tensor that differs is named.
func TestHeaderNamesTheTensor(t *testing.T) {
	net, c := network3(t), testConfig(2, 1, 10)
	r := replicaOf(t, c, net, 10)
	encoded, err := r.Header.Encode()
	if err != nil {
		t.Fatal(err)
	}
	second := r.Header.Tensors[1].Name
	for what, change := range map[string]func(w *Weights){
		"begins with other values": func(w *Weights) { w.data[1][0]++; w.data[2][0]++ },
		"units":                    func(w *Weights) { w.tensors[1].Shift++ },
		"in the run":               func(w *Weights) { w.tensors[1].Shape = []int{2, w.tensors[1].Shape[0] / 2} },
		"is missing":               func(w *Weights) { w.tensors, w.data = w.tensors[:1], w.data[:1] },
	} {
		w := NewWeights(net, c.Key)
		change(w)
		if _, err := NewReplica(encoded, w); !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), second) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Whatever bit is flipped and wherever the file is cut, it is reported, and no wrong step is applied.
func TestDamagedLogs(t *testing.T) {
	skipRaced(t)
	c := testConfig(4, 2, 130)
	log, want := logged(t, c)
	read := func(b []byte) (steps int, hash string, err error) {
		r, err := NewLogReader(bytes.NewReader(b))
		if err != nil {
			return 0, "", err
		}
		chain, err := NewChain(r.Encoded)
		if err != nil {
			return 0, "", err
		}
		for {
			b, err := r.Next()
			if err == nil {
				_, err = chain.Next(b)
			}
			if err != nil {
				return chain.Steps(), "", err
			}
		}
	}
	if steps, _, err := read(log); !errors.Is(err, io.EOF) || steps != 130 {
		t.Fatalf("%d steps, %v", steps, err)
	}
	header := len(log) - 3*(blockHead+blockTail+chainBytes) - 130*4
	for i := range log {
		b := bytes.Clone(log)
		b[i] ^= 1 << (i % 8)
		if steps, _, err := read(b); !errors.Is(err, ErrLog) && !errors.Is(err, ErrTruncated) || i < header && steps > 0 {
			t.Fatalf("byte %d flipped: %d steps, %v", i, steps, err)
		}
	}
	for n := range log {
		if steps, _, err := read(log[:n]); steps%BlockSteps != 0 || err == nil || errors.Is(err, io.EOF) && steps == 0 && n > header+1000 {
			t.Fatalf("cut at %d: %d steps, %v", n, steps, err)
		}
	}
	_ = want
}

func FuzzLog(f *testing.F) {
	log, _ := logged(f, testConfig(4, 2, 70))
	f.Add(log)
	f.Add(log[:len(log)-3])
	f.Add([]byte(logMagic))
	c := testConfig(4, 2, 70)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewLogReader(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrLog) && !errors.Is(err, ErrConfig) {
				t.Fatal(err)
			}
		} else if one, err := r.Next(); err == nil {
			b = one
		}
		if len(b) < blockHead+blockTail+chainBytes {
			return
		}
		block, err := decodeBlock(c, b) // as if its chain were right
		if err != nil {
			return
		}
		if again, err := decodeBlock(c, block.encode(nil)); err != nil || again.Number != block.Number || len(again.Steps) != len(block.Steps) {
			t.Fatalf("%+v comes back as %+v, %v", block, again, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(Frame{Step: 3, Rank: 1, Losses: [2]float32{1, 2}}.Encode(nil))
	f.Add(Frame{Step: 3, Rank: 1, GoOn: true}.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := DecodeFrame(b)
		if err != nil {
			if !errors.Is(err, ErrFrame) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(frame.Encode(nil), b) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, frame, frame.Encode(nil))
		}
	})
}

// A block that no processor makes is refused, although it follows the chain.
func TestBlocksThatNobodyMakes(t *testing.T) {
	c := testConfig(4, 2, 100)
	most := int32(c.maxIncrement())
	for name, change := range map[string]func(b *Block, fifth *Commit){
		"good":                    func(_ *Block, fifth *Commit) { *fifth = Commit{Pairs: 3, Increments: []int32{most, -most}} },
		"good, late":              func(_ *Block, fifth *Commit) { fifth.Late = []Late{{0, 1, most}, {1, 63, -most}} },
		"a step more":             func(b *Block, fifth *Commit) { b.Steps = append(b.Steps, *fifth) },
		"a step less":             func(b *Block, _ *Commit) { b.Steps = b.Steps[1:] },
		"no such pair is prompt":  func(b *Block, _ *Commit) { b.prompt = 4 },
		"no such pair came":       func(_ *Block, fifth *Commit) { fifth.Pairs = 4 },
		"no such pair was late":   func(_ *Block, fifth *Commit) { fifth.Late = []Late{{2, 1, 0}} },
		"late by nothing":         func(_ *Block, fifth *Commit) { fifth.Late = []Late{{0, 0, 0}} },
		"late by a block":         func(_ *Block, fifth *Commit) { fifth.Late = []Late{{0, 64, 0}} },
		"late twice":              func(_ *Block, fifth *Commit) { fifth.Late = []Late{{1, 1, 0}, {1, 2, 0}} },
		"late and in time":        func(_ *Block, fifth *Commit) { fifth.Pairs, fifth.Late = 1, []Late{{0, 1, 0}} },
		"late in another order":   func(_ *Block, fifth *Commit) { fifth.Late = []Late{{1, 1, 0}, {0, 1, 0}} },
		"a larger increment":      func(_ *Block, fifth *Commit) { fifth.Increments[1] = most + 1 },
		"a larger late increment": func(_ *Block, fifth *Commit) { fifth.Late = []Late{{0, 1, -most - 1}} },
		"no scale":                func(b *Block, _ *Commit) { b.tuning.scale = 0 },
		"a scale above one":       func(b *Block, _ *Commit) { b.tuning.scale = 2 },
		"no slopes":               func(b *Block, _ *Commit) { b.tuning.square = math.NaN() },
		"no error":                func(b *Block, _ *Commit) { b.tuning.bestError = -1 },
		"a last mark of two":      nil,
		"another length":          nil,
	} {
		b := &Block{Loss: 1.5, hash: make([]byte, 32), tuning: newTuning()}
		for range BlockSteps {
			b.Steps = append(b.Steps, Commit{Increments: make([]int32, 2)})
		}
		if change != nil {
			change(b, &b.Steps[5])
		}
		data := b.encode(nil)
		switch name {
		case "a last mark of two":
			data[len(data)-96] = 2
		case "another length":
			data = slices.Insert(data, len(data)-chainBytes, 0)
		}
		switch got, err := decodeBlock(c, data); {
		case (err == nil) != strings.HasPrefix(name, "good"):
			t.Errorf("%s: %v", name, err)
		case err == nil && got.Loss != b.Loss:
			t.Errorf("%s: loss %v", name, got.Loss)
		}
	}
}
