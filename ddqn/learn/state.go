package learn

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/zeebo/xxh3"

	"evenkeel/ddqn"
	"evenkeel/ddqn/internal/wire"
)

// A training state holds everything that the next update depends on, so that training which is interrupted and resumed
// gives the same bits as training which is not. Numbers are little-endian. P is the number of weights:
//
//	8        magic
//	4        version
//	4        n, length of the header
//	n        JSON: stateHeader, with the defaults filled in
//	20       state of the PCG generator
//	8        number of updates, at most 2^31 - 1
//	8, 8     Adam's beta1 and beta2 to the power of that number, float64
//	4 P      weights, float32: every layer's W and b, in the order of a policy file
//	4 P      weights of the target network
//	4 P, 4 P Adam's first and second moments
//	...      the streams of the replay, as many as the configuration says
//	8        XXH3-64 of everything before
//
// A stream of M rows a step, F features and R objectives is the number of its steps (8), and for each step, oldest first:
//
//	1        kind: 0 first, 1 mid, 2 last; plus 128 if terminal
//	M        1 for a live row, 0 for a masked one
//	4 M      actions, int32
//	4 M F    rows, float32
//	4 M R    rewards, float32
//	4 R      preference weights, float32
//
// Actions, rewards and weights of a last step are zero.
const (
	stateMagic   = "EKDDQNTS"
	stateVersion = 1
	pcgBytes     = 20 // of rand.PCG.MarshalBinary
)

// stateHeader is what must be equal for a state to make sense.
type stateHeader struct {
	Spec    ddqn.Spec    `json:"spec"`
	Learner Config       `json:"learner"`
	Replay  ReplayConfig `json:"replay"`
}

// SaveState writes the learner's whole state and the content of the replay to w: weights, target weights, Adam's
// moments, the number of updates, the state of the generator given to NewLearner, and every step held.
func (l *Learner) SaveState(w io.Writer, replay *Replay) error {
	if err := l.fits(replay); err != nil {
		return fmt.Errorf("ddqn/learn: save training state: %w", err)
	}
	header, err := json.Marshal(stateHeader{l.online.Spec(), l.cfg, replay.cfg})
	if err != nil {
		return fmt.Errorf("ddqn/learn: save training state: encode header: %w", err)
	}
	pcg, err := l.src.MarshalBinary()
	if err != nil {
		return fmt.Errorf("ddqn/learn: save training state: generator: %w", err)
	}
	sum := xxh3.New()
	buf := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
	le := binary.LittleEndian
	b := append([]byte(nil), stateMagic...)
	b = le.AppendUint32(b, stateVersion)
	b = le.AppendUint32(b, uint32(len(header)))
	b = append(append(b, header...), pcg...)
	b = le.AppendUint64(b, uint64(l.updates))
	b = le.AppendUint64(b, math.Float64bits(l.adam.power1))
	b = le.AppendUint64(b, math.Float64bits(l.adam.power2))
	for _, part := range l.parts() {
		b = wire.AppendFloats(b, part)
	}
	// A bufio.Writer returns its first error from Flush.
	_, _ = buf.Write(b)
	for i := range replay.streams {
		st := &replay.streams[i]
		_, _ = buf.Write(le.AppendUint64(b[:0], uint64(st.count)))
		for k := range st.count {
			b = replay.appendStep(b[:0], st, st.at(k))
			_, _ = buf.Write(b)
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("ddqn/learn: save training state: %w", err)
	}
	if _, err := w.Write(le.AppendUint64(nil, sum.Sum64())); err != nil {
		return fmt.Errorf("ddqn/learn: save training state: %w", err)
	}
	return nil
}

// parts are the flat slices of the state.
func (l *Learner) parts() [][]float32 {
	return [][]float32{l.online.Weights(), l.target.Weights(), l.adam.m, l.adam.v}
}

// appendStep encodes the step at place p of the ring.
func (r *Replay) appendStep(b []byte, st *stream, p int) []byte {
	m, f, o := r.cfg.Group, r.cfg.Features, r.cfg.Objectives
	b = append(b, byte(st.kinds[p]))
	for _, live := range st.live[p*m:][:m] {
		if live {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	for _, a := range st.actions[p*m:][:m] {
		b = binary.LittleEndian.AppendUint32(b, uint32(a))
	}
	b = wire.AppendFloats(b, st.rows[p*m*f:][:m*f])
	b = wire.AppendFloats(b, st.rewards[p*m*o:][:m*o])
	return wire.AppendFloats(b, st.weights[p*o:][:o])
}

// LoadState restores what SaveState wrote, from the first byte to the end of r. The learner and the replay must
// have the configuration of those that were saved, else ddqn.ErrMismatch; their content is replaced, as is the state of
// the generator that NewLearner was given. On an error (ddqn.ErrFormat, ddqn.ErrVersion, ddqn.ErrTruncated, ddqn.ErrNotFinite and
// ddqn.ErrChecksum are the others) nothing is changed.
func (l *Learner) LoadState(r io.Reader, replay *Replay) error {
	if err := l.loadState(r, replay); err != nil {
		return fmt.Errorf("ddqn/learn: load training state: %w", err)
	}
	return nil
}

func (l *Learner) loadState(r io.Reader, replay *Replay) error {
	if err := l.fits(replay); err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, 1<<16)
	sum := xxh3.New()
	body := io.TeeReader(in, sum)
	if err := l.readStateHeader(body, replay); err != nil {
		return err
	}

	fixed := make([]byte, pcgBytes+3*8)
	if err := wire.ReadFull(body, fixed, "the counters"); err != nil {
		return err
	}
	le := binary.LittleEndian
	pcg, counters := new(rand.PCG), fixed[pcgBytes:]
	if err := pcg.UnmarshalBinary(fixed[:pcgBytes]); err != nil {
		return fmt.Errorf("state of the generator: %v: %w", err, ddqn.ErrFormat)
	}
	updates := le.Uint64(counters)
	powers := [2]float64{math.Float64frombits(le.Uint64(counters[8:])), math.Float64frombits(le.Uint64(counters[16:]))}
	if updates > math.MaxInt32 || !(powers[0] >= 0 && powers[0] <= 1) || !(powers[1] >= 0 && powers[1] <= 1) {
		return fmt.Errorf("%d updates with beta powers %v: %w", updates, powers, ddqn.ErrFormat)
	}
	parts := make([][]float32, len(l.parts()))
	for i, old := range l.parts() {
		parts[i] = make([]float32, len(old))
		if err := readFloats(body, parts[i], [...]string{"weights", "target weights", "first moments", "second moments"}[i]); err != nil {
			return err
		}
	}
	loaded, err := readReplay(body, replay.cfg)
	if err != nil {
		return err
	}
	var end [8]byte
	if err := wire.ReadFull(in, end[:], "the checksum"); err != nil {
		return err
	}
	if got, want := sum.Sum64(), le.Uint64(end[:]); got != want {
		return fmt.Errorf("content has checksum %016x, the file says %016x; take an earlier state: %w", got, want, ddqn.ErrChecksum)
	}
	if _, err := in.ReadByte(); err == nil {
		return fmt.Errorf("bytes after the checksum; copy the file again: %w", ddqn.ErrFormat)
	} else if err != io.EOF {
		return fmt.Errorf("read to the end: %w", err)
	}

	for i, part := range l.parts() {
		copy(part, parts[i])
	}
	*l.src = *pcg
	l.updates, l.adam.power1, l.adam.power2 = int(updates), powers[0], powers[1]
	replay.streams = loaded.streams
	return l.sync()
}

// readStateHeader reads up to the end of the JSON header and compares it with the learner and the replay.
func (l *Learner) readStateHeader(r io.Reader, replay *Replay) error {
	var head [len(stateMagic) + 8]byte
	if err := wire.ReadFull(r, head[:], "the file header"); err != nil {
		return err
	}
	if string(head[:len(stateMagic)]) != stateMagic {
		return fmt.Errorf("does not begin with %s; is this a training state?: %w", stateMagic, ddqn.ErrFormat)
	}
	numbers := head[len(stateMagic):]
	if v := binary.LittleEndian.Uint32(numbers); v != stateVersion {
		return fmt.Errorf("version %d, this program reads %d; start training anew or use the evenkeel that wrote it: %w", v, stateVersion, ddqn.ErrVersion)
	}
	n := binary.LittleEndian.Uint32(numbers[4:])
	if n > wire.MaxHeader {
		return fmt.Errorf("header of %d bytes, at most %d are allowed: %w", n, wire.MaxHeader, ddqn.ErrFormat)
	}
	text := make([]byte, n)
	if err := wire.ReadFull(r, text, "the JSON header"); err != nil {
		return err
	}
	var got stateHeader
	if err := wire.StrictJSON(text, &got); err != nil {
		return fmt.Errorf("JSON header: %v: %w", err, ddqn.ErrFormat)
	}
	here, err := json.Marshal(stateHeader{l.online.Spec(), l.cfg, replay.cfg})
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	if file, err := json.Marshal(got); err != nil || !bytes.Equal(file, here) {
		return fmt.Errorf("the file has %s, this run %s; resume with the configuration that was saved: %w", file, here, ddqn.ErrMismatch)
	}
	return nil
}

// readFloats fills dst and refuses what is not finite.
func readFloats(r io.Reader, dst []float32, what string) error {
	data := make([]byte, 4*len(dst))
	if err := wire.ReadFull(r, data, what); err != nil {
		return err
	}
	wire.TakeFloats(dst, data)
	if i := wire.FirstNotFinite(dst); i >= 0 {
		return fmt.Errorf("%s[%d] is %v; take an earlier state: %w", what, i, dst[i], ddqn.ErrNotFinite)
	}
	return nil
}

// readReplay reads the steps of all streams through the same checks as Add.
func readReplay(r io.Reader, cfg ReplayConfig) (*Replay, error) {
	replay, err := NewReplay(cfg)
	if err != nil {
		return nil, err
	}
	m, f, o := cfg.Group, cfg.Features, cfg.Objectives
	s := Step{
		Rows: make([]float32, m*f), Live: make([]bool, m), Actions: make([]int, m),
		Rewards: make([]float32, m*o), Weights: make([]float32, o),
	}
	record := make([]byte, 1+5*m+4*(m*f+m*o+o))
	for i := range replay.streams {
		st := &replay.streams[i]
		var size [8]byte
		if err := wire.ReadFull(r, size[:], "the length of a stream"); err != nil {
			return nil, err
		}
		count := binary.LittleEndian.Uint64(size[:])
		if count > uint64(cfg.Capacity) {
			return nil, fmt.Errorf("stream %d has %d steps, more than its capacity %d: %w", i, count, cfg.Capacity, ddqn.ErrFormat)
		}
		for k := range count {
			if err := wire.ReadFull(r, record, "a step"); err != nil {
				return nil, err
			}
			s.decode(record)
			// The oldest step may be any: what came before it may have been overwritten.
			begins := st.open == 0
			if err := replay.check(s, begins, !begins || k == 0); err != nil {
				return nil, fmt.Errorf("stream %d, step %d: %w: %w", i, k, err, ddqn.ErrFormat)
			}
			replay.put(st, s)
		}
	}
	return replay, nil
}

// decode takes what appendStep wrote into a step whose slices have their lengths.
func (s *Step) decode(b []byte) {
	kind := stepKind(b[0])
	s.Kind, s.Terminal = kind.kind(), kind.isTerminal()
	b = b[1:]
	for i := range s.Live {
		s.Live[i] = b[i] != 0
	}
	b = b[len(s.Live):]
	for i := range s.Actions {
		s.Actions[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	b = b[4*len(s.Actions):]
	for _, part := range [][]float32{s.Rows, s.Rewards, s.Weights} {
		wire.TakeFloats(part, b)
		b = b[4*len(part):]
	}
}
