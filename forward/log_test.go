package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// logged runs with a log and returns it, with the weights' hash at the end.
func logged(t testing.TB, c *Config) (log []byte, want string) {
	t.Helper()
	net := network3(t)
	var b bytes.Buffer
	lw, err := NewLogWriter(&b, Header{Config: *c, Task: json.RawMessage(`{"a":1}`), Initial: NewWeights(net, c.Key).Hash()})
	if err != nil {
		t.Fatal(err)
	}
	all := runAll(t, c, net, NewMemory(), func(p *Processor) {
		if p.Rank == 0 {
			p.Each = func(_ int, c Commit) error { return lw.Add(c) }
		}
	})
	if err := lw.Flush(); err != nil {
		t.Fatal(err)
	}
	if lw.Bytes() != int64(b.Len()) {
		t.Errorf("%d bytes counted, %d written", lw.Bytes(), b.Len())
	}
	return b.Bytes(), all[0].Weights.Hash()
}

func TestReplayGivesTheSameBits(t *testing.T) {
	for _, momentum := range []float64{0, 0.6} {
		for _, kind := range []Kind{Rademacher, Gaussian} {
			c := testConfig(8, 4, 150)
			c.Kind, c.Momentum = kind, momentum
			log, want := logged(t, c)
			r, err := NewLogReader(bytes.NewReader(log))
			if err != nil {
				t.Fatal(err)
			}
			w := NewWeights(network3(t), c.Key)
			if steps, err := Replay(r, w); err != nil || steps != 150 || w.Hash() != want {
				t.Errorf("%s, momentum %v: %d steps, %v, %s, want %s", kind, momentum, steps, err, w.Hash(), want)
			}
			if len(log) > 150*18+1000 {
				t.Errorf("the log takes %d bytes", len(log))
			}
		}
	}
}

func TestReplayRefusesOtherWeights(t *testing.T) {
	c := testConfig(2, 1, 10)
	log, _ := logged(t, c)
	r, err := NewLogReader(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	w := NewWeights(network3(t), c.Key+1)
	if _, err := Replay(r, w); !errors.Is(err, ErrWeights) {
		t.Error(err)
	}
}

// Whatever bit is flipped and wherever the file is cut, it is reported, and no wrong step is applied.
func TestDamagedLogs(t *testing.T) {
	c := testConfig(4, 2, 130)
	log, _ := logged(t, c)
	read := func(b []byte) (commits []Commit, err error) {
		r, err := NewLogReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		for {
			c, err := r.Next()
			if err != nil {
				return commits, err
			}
			commits = append(commits, c)
		}
	}
	good, err := read(log)
	if !errors.Is(err, io.EOF) || len(good) != 130 {
		t.Fatalf("%d steps, %v", len(good), err)
	}
	for i := range log {
		b := bytes.Clone(log)
		b[i] ^= 1 << (i % 8)
		commits, err := read(b)
		if !errors.Is(err, ErrLog) && !errors.Is(err, ErrTruncated) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		for k, c := range commits {
			if c.Increments[0] != good[k].Increments[0] || c.Pairs != good[k].Pairs {
				t.Fatalf("byte %d flipped: step %d is another one", i, k)
			}
		}
	}
	for n := range log {
		commits, err := read(log[:n])
		if len(commits)%blockSteps != 0 || err == nil || errors.Is(err, io.EOF) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrLog) && len(commits) != 64 && len(commits) != 128 && len(commits) != 0 {
			t.Fatalf("cut at %d: %d steps, %v", n, len(commits), err)
		}
	}
}

func FuzzLog(f *testing.F) {
	log, _ := logged(f, testConfig(4, 2, 70))
	f.Add(log)
	f.Add(log[:len(log)-3])
	f.Add([]byte(logMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewLogReader(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrLog) {
				t.Fatal(err)
			}
			return
		}
		for {
			c, err := r.Next()
			if err != nil {
				return
			}
			if len(c.Increments) != r.Header.Config.Directions {
				t.Fatal("a commit of other directions")
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(Frame{Step: 3, Rank: 1, Losses: [2]float32{1, 2}}.Encode(nil))
	f.Add(Frame{Step: 3, Rank: 1, Commit: true, Pairs: 5}.Encode(nil))
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
