package training

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/google/renameio/v2"
	"github.com/zeebo/xxh3"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/env"
	"evenkeel/internal/badinput"
)

// A checkpoint file is, with little-endian numbers: the magic, whose 4 is the version (8); the length of the header (8);
// the header, JSON of checkpoint; its XXH3-64 (8); the learner's state (learn.SaveState).
//
// The environments are not stored but replayed: the generator's state at the start of an episode
// and the actions so far lead to the same bits.
const (
	checkpointMagic = "EKTRAIN4"
	maxCheckpoint   = 1 << 30 // bytes of the header
)

// errCheckpoint marks every error about the content of a checkpoint file as bad input.
var errCheckpoint = badinput.New("training: invalid checkpoint")

type checkpoint struct {
	Config   Config             `json:"config"`          // with the defaults filled in
	Sets     int                `json:"sets"`            // done; a set is one step of every environment and the updates after it
	PCG      []byte             `json:"pcg"`             // generator of episodes and exploration
	Low      []float32          `json:"low"`             // lower end of every feature's range so far, in the order of env.Tracker.Rows
	High     []float32          `json:"high"`            // upper end
	First    string             `json:"first,omitempty"` // checksum of the network after the first set of updates
	Returned float64            `json:"returned"`        // moving average of the return
	Team     float64            `json:"team"`            // and of the team's reward
	Streams  []checkpointStream `json:"streams"`         // one for each environment
}

type checkpointStream struct {
	Born    []byte   `json:"born"`    // state of the generator before the present episode was drawn
	Actions [][]byte `json:"actions"` // a string for each round so far: each node's index in env.Actions, then the rule's index in cluster.Rules + 1, 0 where it is fixed
}

// SaveCheckpoint writes all that LoadCheckpoint needs to continue as if training had not
// been interrupted. The file replaces an older one only when it is complete.
func (t *Trainer) SaveCheckpoint(path string) (err error) {
	c := checkpoint{Config: t.config, Sets: t.sets, Low: t.low, High: t.high, First: t.first, Returned: t.returned, Team: t.team}
	if c.PCG, err = t.pcg.MarshalBinary(); err != nil {
		return fmt.Errorf("training: checkpoint %s: %w", path, err)
	}
	for _, s := range t.streams {
		c.Streams = append(c.Streams, checkpointStream{Born: s.born, Actions: s.history})
	}
	header, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("training: checkpoint %s: %w", path, err)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("training: checkpoint: %w", err)
	}
	defer f.Cleanup()
	le := binary.LittleEndian
	b := le.AppendUint64([]byte(checkpointMagic), uint64(len(header)))
	b = le.AppendUint64(append(b, header...), xxh3.Hash(header))
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("training: checkpoint %s: %w", path, err)
	}
	if err := t.learner.SaveState(f, t.replay); err != nil {
		return fmt.Errorf("training: checkpoint %s: %w", path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("training: checkpoint %s: %w", path, err)
	}
	return nil
}

// LoadCheckpoint restores a training run. The catalogue must be the one it was started
// with. Errors about the content are bad input.
func LoadCheckpoint(catalogue *profile.Catalogue, path string) (*Trainer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("training: checkpoint: %w", err)
	}
	defer f.Close()
	t, err := readCheckpoint(catalogue, f)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errCheckpoint, path, err)
	}
	return t, nil
}

func readCheckpoint(catalogue *profile.Catalogue, r io.Reader) (*Trainer, error) {
	c, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	// Checked before the trainer allocates as many environments as the header says.
	config := c.Config.withDefaults()
	if len(c.Streams) != config.Envs || len(c.Low) != env.Features || len(c.High) != env.Features {
		return nil, errors.New("its parts do not fit together")
	}
	t, err := newTrainer(catalogue, config)
	if err != nil {
		return nil, err
	}
	if c.Sets < 0 || c.Sets > config.sets() {
		return nil, fmt.Errorf("%d sets of steps are done, of %d", c.Sets, config.sets())
	}
	for k, s := range t.streams {
		if err := s.replay(t.sampler, c.Streams[k]); err != nil {
			return nil, fmt.Errorf("environment %d: %w", k, err)
		}
	}
	if err := t.pcg.UnmarshalBinary(c.PCG); err != nil {
		return nil, err
	}
	if err := t.learner.LoadState(r, t.replay); err != nil {
		return nil, err
	}
	t.sets, t.low, t.high, t.first, t.returned, t.team = c.Sets, c.Low, c.High, c.First, c.Returned, c.Team
	return t, nil
}

// readHeader reads the part of a checkpoint before the learner's state.
func readHeader(r io.Reader) (*checkpoint, error) {
	start := make([]byte, len(checkpointMagic)+8)
	_, err := io.ReadFull(r, start)
	const digit = len(checkpointMagic) - 1
	switch magic := string(start[:digit]); {
	case err != nil || magic != checkpointMagic[:digit]:
		return nil, errors.New("it does not begin like a checkpoint")
	case start[digit] != checkpointMagic[digit]:
		return nil, fmt.Errorf("version %c, this program reads version %c; finish the run with the program that began it, or train anew (evenkeel train)", start[digit], checkpointMagic[digit])
	}
	size := binary.LittleEndian.Uint64(start[len(checkpointMagic):])
	if size > maxCheckpoint {
		return nil, fmt.Errorf("a header of %d bytes; at most %d are allowed", size, maxCheckpoint)
	}
	// Copied as it comes, so that a false size does not allocate memory that no file fills.
	var body bytes.Buffer
	if n, err := io.CopyN(&body, r, int64(size)+8); err != nil {
		return nil, fmt.Errorf("truncated: %d of %d bytes of the header", n, size+8)
	}
	header := body.Bytes()[:size]
	if binary.LittleEndian.Uint64(body.Bytes()[size:]) != xxh3.Hash(header) {
		return nil, errors.New("the header's checksum is wrong")
	}
	c := &checkpoint{}
	if err := json.Unmarshal(header, c); err != nil {
		return nil, err
	}
	return c, nil
}

// replay repeats an episode up to the checkpoint.
func (s *stream) replay(sampler *Sampler, c checkpointStream) error {
	var pcg rand.PCG
	if err := pcg.UnmarshalBinary(c.Born); err != nil {
		return err
	}
	if started, err := s.draw(sampler, rand.New(&pcg)); err != nil || !started {
		return errors.Join(errors.New("the episode cannot be drawn again; were other profiles in use?"), err)
	}
	for round, actions := range c.Actions {
		n := s.episode.Size()
		if len(actions) != n+1 || int(actions[n]) > len(cluster.Rules) {
			return fmt.Errorf("round %d: %d actions for %d nodes; were other profiles in use?", round, len(actions)-1, n)
		}
		for i, a := range actions[:n] {
			s.actions[i] = int(a)
		}
		if rule := int(actions[n]) - 1; rule >= 0 {
			s.episode.SetRule(rule)
		}
		if _, err := s.episode.Step(s.actions); err != nil {
			return err
		}
	}
	s.born, s.history = c.Born, c.Actions
	return nil
}
