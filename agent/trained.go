package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
	"github.com/evenkeel/evenkeel/internal/badinput"
)

// Trained is a trained network with the record of its training: a policy file.
type Trained struct {
	Network *ddqn.Network // decides about nodes
	Round   *ddqn.Network // decides about rounds
	Record  Record
}

// Names in a policy file: of the record and of the networks.
const (
	recordKey    = "evenkeel.policy"
	nodesNetwork = "nodes"
	roundNetwork = "round"
)

// ErrPolicy marks every error about the content of a policy file. It is bad input.
var ErrPolicy = badinput.New("agent: invalid policy file")

//go:embed policy/evenkeel.safetensors
var embedded []byte

// Embedded returns the policy that comes with the program.
func Embedded() (*Trained, error) {
	nets, meta, err := ddqn.Read(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("agent: embedded policy: %w", err)
	}
	return parse("embedded policy", nets, meta)
}

// Load reads a policy file. Errors about its content wrap ErrPolicy.
func Load(path string) (*Trained, error) {
	nets, meta, err := ddqn.Load(path)
	if err != nil {
		for _, content := range []error{ddqn.ErrFormat, ddqn.ErrVersion, ddqn.ErrTruncated, ddqn.ErrNotFinite, ddqn.ErrChecksum} {
			if errors.Is(err, content) {
				return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
			}
		}
		return nil, err
	}
	return parse(path, nets, meta)
}

// NewTrained returns a trained policy made of the networks that decide about nodes and about
// rounds. It sets the record's version to the one that this program reads.
func NewTrained(nodes, round *ddqn.Network, record Record) *Trained {
	record.Version = recordVersion
	return &Trained{Network: nodes, Round: round, Record: record}
}

func parse(name string, nets map[string]*ddqn.Network, meta map[string]string) (*Trained, error) {
	t := &Trained{Network: nets[nodesNetwork], Round: nets[roundNetwork]}
	text, ok := meta[recordKey]
	if !ok {
		return nil, fmt.Errorf("%w: %s: its metadata lacks %q; it is not a policy of evenkeel", ErrPolicy, name, recordKey)
	}
	if err := json.Unmarshal([]byte(text), &t.Record); err != nil {
		return nil, fmt.Errorf("%w: %s: metadata %q: %w", ErrPolicy, name, recordKey, err)
	}
	if v := t.Record.Version; v != recordVersion {
		return nil, fmt.Errorf("%w: %s: version %d, this program reads version %d; train a new one (evenkeel train)", ErrPolicy, name, v, recordVersion)
	}
	if t.Network == nil || t.Round == nil || len(nets) != 2 {
		return nil, fmt.Errorf("%w: %s: networks %q; %q and %q are needed", ErrPolicy, name, slices.Sorted(maps.Keys(nets)), nodesNetwork, roundNetwork)
	}
	r := &t.Record
	if err := errors.Join(
		checkNetwork(name, nodesNetwork, t.Network, env.Features, len(env.Actions), r.Low, r.High),
		checkNetwork(name, roundNetwork, t.Round, env.RoundFeatures, len(cluster.Rules), r.RoundLow, r.RoundHigh),
	); err != nil {
		return nil, err
	}
	return t, nil
}

// checkNetwork checks that a network and the ranges of its features fit the input that this
// program feeds it.
func checkNetwork(file, name string, net *ddqn.Network, features, actions int, low, high []float32) error {
	s := net.Spec()
	if s.Features != features || s.Actions != actions || s.Objectives != env.Objectives {
		return fmt.Errorf("%w: %s: network %q has %v; %d features, %d actions and %d objectives are needed", ErrPolicy, file, name, s, features, actions, env.Objectives)
	}
	if len(low) != features || len(high) != features {
		return fmt.Errorf("%w: %s: network %q: ranges of %d and %d features, want %d", ErrPolicy, file, name, len(low), len(high), features)
	}
	for i := range low {
		if low[i] > high[i] {
			return fmt.Errorf("%w: %s: network %q: feature %d has the range %v to %v", ErrPolicy, file, name, i, low[i], high[i])
		}
	}
	return nil
}

// Save writes the policy file. The same policy gives the same bytes.
func (t *Trained) Save(path string) error {
	record, err := json.Marshal(t.Record)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return ddqn.Save(path, map[string]*ddqn.Network{nodesNetwork: t.Network, roundNetwork: t.Round}, map[string]string{recordKey: string(record)})
}

// inRange reports whether the row is within the ranges of training. A feature may exceed
// its range by a fifth of it.
func inRange(row, low, high []float32) bool {
	b := newBounds(low, high)
	return b.contains(row)
}

// bounds are ranges of training, each widened by a fifth.
type bounds struct{ low, high []float32 }

func newBounds(low, high []float32) bounds {
	b := bounds{make([]float32, len(low)), make([]float32, len(high))}
	for i := range low {
		slack := 0.2*(high[i]-low[i]) + 1e-3
		b.low[i], b.high[i] = low[i]-slack, high[i]+slack
	}
	return b
}

func (b *bounds) contains(row []float32) bool {
	low, high := b.low[:len(row)], b.high[:len(row)]
	for i, v := range row {
		if !(v >= low[i] && v <= high[i]) {
			return false
		}
	}
	return true
}
