package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"evenkeel/ddqn"
	"evenkeel/env"
	"evenkeel/internal/badinput"
)

// Trained is a trained network with the record of its training: a policy file.
type Trained struct {
	Network *ddqn.Network // decides about nodes
	Record  Record
}

// Names in a policy file: of the record and of the network.
const (
	recordKey    = "evenkeel.policy"
	nodesNetwork = "nodes"
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

// NewTrained returns a trained policy with a network. It sets the record's version.
func NewTrained(nodes *ddqn.Network, record Record) *Trained {
	record.Version = recordVersion
	return &Trained{Network: nodes, Record: record}
}

func parse(name string, nets map[string]*ddqn.Network, meta map[string]string) (*Trained, error) {
	t := &Trained{Network: nets[nodesNetwork]}
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
	if t.Network == nil || len(nets) != 1 {
		return nil, fmt.Errorf("%w: %s: networks %q; %q alone is needed", ErrPolicy, name, slices.Sorted(maps.Keys(nets)), nodesNetwork)
	}
	if err := t.check(name); err != nil {
		return nil, err
	}
	return t, nil
}

// check returns an error unless the network and the ranges of its features fit this program's observations.
func (t *Trained) check(file string) error {
	s, low, high := t.Network.Spec(), t.Record.Low, t.Record.High
	if s.Features != env.Features || s.Actions != len(env.Actions) || s.Objectives != env.Objectives {
		return fmt.Errorf("%w: %s: the network has %v; %d features, %d actions and %d objectives are needed", ErrPolicy, file, s, env.Features, len(env.Actions), env.Objectives)
	}
	if len(low) != env.Features || len(high) != env.Features {
		return fmt.Errorf("%w: %s: ranges of %d and %d features, want %d", ErrPolicy, file, len(low), len(high), env.Features)
	}
	for i := range low {
		if low[i] > high[i] {
			return fmt.Errorf("%w: %s: feature %d has the range %v to %v", ErrPolicy, file, i, low[i], high[i])
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
	return ddqn.Save(path, map[string]*ddqn.Network{nodesNetwork: t.Network}, map[string]string{recordKey: string(record)})
}

// bounds are the ranges of the features in training, each widened by a fifth of its width and 0.001.
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

// Record is the metadata of a policy file: how the policy was trained.
type Record struct {
	Version   int         `json:"version"` // of the meaning of features and actions
	Advantage float64     `json:"advantage"`
	Low       []float32   `json:"low"`  // range of each feature in training
	High      []float32   `json:"high"` // the same
	Config    TrainConfig `json:"config"`
	Updates   int         `json:"updates"`
	First     string      `json:"first"`     // checksum of the network after the first set of updates; a short run with the same configuration must have it too
	Return    float64     `json:"return"`    // mean own reward per round at the end of training
	Workloads []string    `json:"workloads"` // trained on
	Devices   []string    `json:"devices"`   // trained on
}

// recordVersion changes whenever the features or actions of env change their meaning.
const recordVersion = 5

// TrainConfig says how a policy is trained; package training does it and calls it Config.
// The defaults, with seed 1, train the embedded policy; each says why.
type TrainConfig struct {
	Seed uint64 `json:"seed"`
	// Steps is the number of rounds over all environments. Zero: 480,000; with 80,000 the network is worse than the fallback
	// where rounds do not wait for all (docs/decisions/0035-what-the-networks-may-decide.md).
	Steps int `json:"steps"`
	// Envs is the number of episodes side by side. Zero: 128; with 32, the replay holds so
	// few different clusters at a time that the network follows the newest of them.
	Envs int `json:"envs"`
	// Updates is the number of gradient steps per step of all environments. Zero: 12,
	// which keeps the learner's core as busy as the actor's.
	Updates int `json:"updates"`
	// Gamma is the discount per round. Zero: 0.5; the effect of a choice shows at once,
	// and a longer horizon only adds noise.
	Gamma float64 `json:"gamma"`
	// Explore is the share of random actions of an exploring node. Zero: 0.8; each node has its own reward, so one node's
	// exploration does not disturb another's reward.
	Explore float64 `json:"explore"`
	// Hidden are the widths of the network's layers. Nil: 64, 64.
	Hidden []int `json:"hidden"`
}
