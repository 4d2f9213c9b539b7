package learn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/zeebo/xxh3"

	"evenkeel/ddqn"
)

// run is a training whose replay grows as it goes, as a real one does.
type run struct {
	learner *Learner
	replay  *Replay
	kinds   []Kind
}

var (
	runSpec   = ddqn.Spec{Features: 4, Actions: 3, Objectives: 2, Hidden: []int{8}}
	runReplay = ReplayConfig{Streams: 3, Capacity: 40, Group: 2, Features: 4, Objectives: 2}
)

func newRun(t testing.TB, seed uint64) *run {
	t.Helper()
	learner, err := NewLearner(Config{Batch: 5, Group: 2, DecayUpdates: 100}, newNet(t, runSpec, seed), rand.NewPCG(seed, 1))
	if err != nil {
		t.Fatal(err)
	}
	replay, err := NewReplay(runReplay)
	if err != nil {
		t.Fatal(err)
	}
	return &run{learner, replay, make([]Kind, runReplay.Streams)}
}

// advance adds a step to every stream and updates, several times; the steps depend on when they are added only.
func (r *run) advance(t testing.TB, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(uint64(i), 99))
		for s := range r.kinds {
			if err := r.replay.Add(s, randomStep(runReplay, 3, r.kinds[s], rng)); err != nil {
				t.Fatal(err)
			}
			switch {
			case r.kinds[s] == Last:
				r.kinds[s] = First
			case rng.IntN(60) == 0: // some episodes are longer than the replay
				r.kinds[s] = Last
			default:
				r.kinds[s] = Mid
			}
		}
		if _, err := r.learner.Update(r.replay); err != nil && !errors.Is(err, errEmpty) {
			t.Fatal(err)
		}
	}
}

func (r *run) bytes(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.learner.SaveState(&b, r.replay); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sealed corrects the checksum of a state that was tampered with.
func sealed(state []byte) []byte {
	body := state[:len(state)-8]
	return binary.LittleEndian.AppendUint64(bytes.Clone(body), xxh3.Hash(body))
}

func TestLoadStateRefuses(t *testing.T) {
	r := newRun(t, 1)
	r.advance(t, 0, 60)
	good := r.bytes(t)
	headerEnd := 16 + int(binary.LittleEndian.Uint32(good[12:]))
	weights := headerEnd + pcgBytes + 24
	streams := weights + 16*len(r.learner.online.Weights())
	change := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return sealed(b)
	}
	nan := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.NaN())))
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":          {nil, ddqn.ErrTruncated},
		"half":           {good[:len(good)/2], ddqn.ErrTruncated},
		"no checksum":    {good[:len(good)-8], ddqn.ErrTruncated},
		"trailing":       {append(bytes.Clone(good), 0), ddqn.ErrFormat},
		"magic":          {change(0, 'X'), ddqn.ErrFormat},
		"version":        {change(8, 2), ddqn.ErrVersion},
		"header size":    {change(12, 255, 255, 255, 255), ddqn.ErrFormat},
		"header":         {change(16, '['), ddqn.ErrFormat},
		"generator":      {change(headerEnd, 'X'), ddqn.ErrFormat},
		"updates":        {change(headerEnd+pcgBytes+7, 255), ddqn.ErrFormat},
		"beta power":     {change(headerEnd+pcgBytes+8, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f), ddqn.ErrFormat},
		"weight":         {change(weights, nan...), ddqn.ErrNotFinite},
		"stream length":  {change(streams+1, 1), ddqn.ErrFormat},
		"kind":           {change(streams+8, 5), ddqn.ErrFormat},
		"episode order":  {change(streams+8+(1+5*2+4*(8+4+2)), byte(First)), ddqn.ErrFormat},
		"reward":         {change(streams+8+1+5*2+4*8, nan...), ddqn.ErrNotFinite},
		"bit flipped":    {func() []byte { b := bytes.Clone(good); b[weights] ^= 1; return b }(), ddqn.ErrChecksum},
		"learner config": {sealed(bytes.Replace(good, []byte(`"n_step":3`), []byte(`"n_step":4`), 1)), ddqn.ErrMismatch},
		"replay config":  {sealed(bytes.Replace(good, []byte(`"capacity":40`), []byte(`"capacity":50`), 1)), ddqn.ErrMismatch},
		"network":        {sealed(bytes.Replace(good, []byte(`"hidden":[8]`), []byte(`"hidden":[9]`), 1)), ddqn.ErrMismatch},
	} {
		if err := r.learner.LoadState(bytes.NewReader(c.file), r.replay); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !bytes.Equal(r.bytes(t), good) {
			t.Fatalf("%s: a refused file changed the learner", name)
		}
	}
	other, err := NewReplay(ReplayConfig{Streams: 1, Capacity: 2, Group: 1, Features: 4, Objectives: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.learner.LoadState(bytes.NewReader(good), other); !errors.Is(err, ddqn.ErrMismatch) {
		t.Errorf("load into a replay that does not fit: %v", err)
	}
	if err := r.learner.SaveState(new(bytes.Buffer), other); !errors.Is(err, ddqn.ErrMismatch) {
		t.Errorf("save a replay that does not fit: %v", err)
	}
	if err := r.learner.LoadState(iotest.ErrReader(errors.New("broken disk")), r.replay); err == nil {
		t.Error("a broken reader was accepted")
	}
}

// With go test -fuzz, give -fuzzminimizetime 10x: every byte of a state matters, so that minimising takes for ever.
func FuzzLoadState(f *testing.F) {
	r := newRun(f, 1)
	r.advance(f, 0, 10)
	good := r.bytes(f)
	f.Add(good)
	f.Add(good[:len(good)-20])
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range [][]byte{data, append(bytes.Clone(data), make([]byte, 8)...)} {
			if len(file) > 8 {
				file = sealed(file) // or the checksum would hide everything behind it
			}
			if err := r.learner.LoadState(bytes.NewReader(file), r.replay); err != nil {
				continue
			}
			state := r.bytes(t)
			if err := r.learner.LoadState(bytes.NewReader(state), r.replay); err != nil {
				t.Fatalf("cannot load what was saved: %v", err)
			}
			if !bytes.Equal(r.bytes(t), state) {
				t.Fatal("a state that was loaded and saved again differs")
			}
		}
	})
}
