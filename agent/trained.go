package agent

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/evenkeel/evenkeel/ddqn"
	"github.com/evenkeel/evenkeel/env"
)

// Trained is a trained network with the record of its training: a policy file.
type Trained struct {
	Network *ddqn.Network // of the nodes' decisions
	Record  Record
}

// Record is what a policy file says about itself, in its metadata.
type Record struct {
	Version   int         `json:"version"` // of the meaning of features and actions: recordVersion
	Advantage float64     `json:"advantage"`
	Low       []float32   `json:"low"`  // range of every feature in training
	High      []float32   `json:"high"` // the same
	Config    TrainConfig `json:"config"`
	Updates   int         `json:"updates"`
	Return    float64     `json:"return"`    // mean own reward per round at the end of training
	Workloads []string    `json:"workloads"` // trained on
	Devices   []string    `json:"devices"`   // trained on
}

// recordVersion changes whenever env's features or actions change their meaning.
const recordVersion = 1

// Names in a policy file: of the record and of the network.
const (
	recordKey    = "evenkeel.policy"
	nodesNetwork = "nodes"
)

// ErrPolicy marks every error about the content of a policy file: bad input.
var ErrPolicy = errors.New("invalid policy file")

//go:embed policy/evenkeel.safetensors
var embedded []byte

// Embedded is the policy that comes with the program.
func Embedded() (*Trained, error) {
	nets, meta, err := ddqn.Read(bytes.NewReader(embedded))
	if err != nil {
		return nil, fmt.Errorf("agent: embedded policy: %w", err)
	}
	return newTrained("embedded policy", nets, meta)
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
	return newTrained(path, nets, meta)
}

func newTrained(name string, nets map[string]*ddqn.Network, meta map[string]string) (*Trained, error) {
	t := &Trained{Network: nets[nodesNetwork]}
	text, ok := meta[recordKey]
	if !ok {
		return nil, fmt.Errorf("%s: %w: no %q in its metadata; it is no policy of evenkeel", name, ErrPolicy, recordKey)
	}
	if err := json.Unmarshal([]byte(text), &t.Record); err != nil {
		return nil, fmt.Errorf("%s: %w: metadata %q: %w", name, ErrPolicy, recordKey, err)
	}
	if v := t.Record.Version; v != recordVersion {
		return nil, fmt.Errorf("%s: %w: version %d, this program reads version %d; train anew (evenkeel train)", name, ErrPolicy, v, recordVersion)
	}
	if t.Network == nil || len(nets) != 1 {
		return nil, fmt.Errorf("%s: %w: networks %q; %q alone is needed", name, ErrPolicy, slices.Sorted(maps.Keys(nets)), nodesNetwork)
	}
	s := t.Network.Spec()
	if s.Features != env.Features || s.Actions != len(env.Actions) || s.Objectives != env.Objectives {
		return nil, fmt.Errorf("%s: %w: a network of %v; %d features, %d actions and %d objectives are needed", name, ErrPolicy, s, env.Features, len(env.Actions), env.Objectives)
	}
	if len(t.Record.Low) != env.Features || len(t.Record.High) != env.Features {
		return nil, fmt.Errorf("%s: %w: ranges of %d and %d features, want %d", name, ErrPolicy, len(t.Record.Low), len(t.Record.High), env.Features)
	}
	for i, low := range t.Record.Low {
		if high := t.Record.High[i]; low > high {
			return nil, fmt.Errorf("%s: %w: feature %d has the range %v to %v", name, ErrPolicy, i, low, high)
		}
	}
	return t, nil
}

// Save writes the policy file; the same policy gives the same bytes.
func (t *Trained) Save(path string) error {
	record, err := json.Marshal(t.Record)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	return ddqn.Save(path, map[string]*ddqn.Network{nodesNetwork: t.Network}, map[string]string{recordKey: string(record)})
}

// inRange says whether the network has seen inputs like this row. A feature may pass
// its range in training by a fifth of it.
func (t *Trained) inRange(row []float32) bool {
	for i, v := range row {
		slack := 0.2*(t.Record.High[i]-t.Record.Low[i]) + 1e-3
		if !(v >= t.Record.Low[i]-slack && v <= t.Record.High[i]+slack) {
			return false
		}
	}
	return true
}
