// Package task describes a training task in a few fields, for a command line or a file: data, network, sizes of
// micro-batches, optimizer.
// See the Example.
package task

import (
	"bytes"
	"cmp"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/zeebo/xxh3"

	"evenkeel/internal/badinput"
	"evenkeel/train"
	"evenkeel/train/data"
)

// ErrTask marks a task description that is not valid.
var ErrTask = badinput.New("task")

// Data that need no file; every other name is that of a file, .csv or text.
const (
	Digits    = "digits"
	Synthetic = "synthetic"
)

// Models.
const (
	MLP         = "mlp"
	Convnet     = "convnet"
	Transformer = "transformer"
)

// version of the file.
const version = 1

// Limits of a task.
const (
	maxFileBytes = 1 << 20
	maxNodes     = 1024
	maxSize      = 1 << 16
	maxWeights   = 1 << 30
)

//go:embed task.schema.json
var schema []byte

// Task is what is trained. Zero values of what may be left out are filled in by WithDefaults.
type Task struct {
	Version  int    `json:"version"`
	Data     string `json:"data"`                // Digits, Synthetic or a file; default Digits
	DataHash string `json:"data_hash,omitempty"` // xxh3 of the file's bytes, set by Build
	Model    string `json:"model"`               // default: Transformer for text, MLP for all else
	// Size is the floats of each hidden layer (MLP), of a token (Transformer, a multiple of 4, which are the heads),
	// the channels of the first convolution (Convnet; each one after it has twice as many). Default 128, 64, 16.
	Size   int `json:"size"`
	Depth  int `json:"depth"`  // hidden layers, convolutions or blocks; default 2
	Length int `json:"length"` // characters of a sample of text; default 64
	// MicroBatches is each node's samples in a step; default 16, 16.
	MicroBatches []int        `json:"micro_batches"`
	Optimizer    train.Method `json:"optimizer"` // default AdamW
	Rate         float64      `json:"rate"`      // default 0.1, 0.01, 0.001 for SGD, Momentum, AdamW
	Steps        int          `json:"steps"`     // default 1000
	Seed         uint64       `json:"seed"`
}

// WithDefaults fills in what was left out.
func (t Task) WithDefaults() Task {
	t.Version = version
	set(&t.Data, Digits)
	set(&t.Model, MLP)
	if t.Model == MLP && t.text() {
		t.Model = Transformer
	}
	set(&t.Size, cmp.Or(map[string]int{MLP: 128, Convnet: 16}[t.Model], 64))
	set(&t.Depth, 2)
	set(&t.Length, 64)
	if len(t.MicroBatches) == 0 {
		t.MicroBatches = []int{16, 16}
	}
	set(&t.Optimizer, train.AdamW)
	set(&t.Rate, rates[t.Optimizer])
	set(&t.Steps, 1000)
	return t
}

// rates are the learning rates that methods begin with.
var rates = map[train.Method]float64{train.SGD: 0.1, train.Momentum: 0.01, train.AdamW: 0.001}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (t Task) file() bool { return t.Data != Digits && t.Data != Synthetic }
func (t Task) text() bool { return t.file() && !strings.EqualFold(filepath.Ext(t.Data), ".csv") }

// Validate reports everything that is wrong; errors wrap ErrTask.
func (t Task) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrTask}, args...)...))
	}
	if t.Version != version {
		bad("version %d; want %d", t.Version, version)
	}
	models := []string{MLP, Convnet, Transformer}
	switch {
	case !slices.Contains(models, t.Model):
		bad("model %q; want one of %s", t.Model, strings.Join(models, ", "))
	case t.text() != (t.Model == Transformer):
		bad("model %s of %s: a transformer is for text, the others are for numbers (digits, synthetic, .csv)", t.Model, t.Data)
	case t.Model == Convnet && t.Data != Digits:
		bad("model convnet of %s: it is for images, digits", t.Data)
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{{"size", t.Size, maxSize}, {"depth", t.Depth, 64}, {"length", t.Length, maxSize}, {"steps", t.Steps, 1 << 40}} {
		if f.value < 1 || f.value > f.max {
			bad("%s %d; want 1 to %d", f.name, f.value, f.max)
		}
	}
	if t.Model == Transformer && t.Size%heads != 0 {
		bad("size %d; want a multiple of %d, the heads of the transformer", t.Size, heads)
	}
	if len(t.MicroBatches) > maxNodes {
		bad("micro_batches of %d nodes; want at most %d", len(t.MicroBatches), maxNodes)
	}
	for i, b := range t.MicroBatches {
		if b < 1 || b > maxSize {
			bad("micro-batch of %d samples for node %d; want 1 to %d", b, i, maxSize)
		}
	}
	if _, ok := rates[t.Optimizer]; !ok {
		bad("optimizer %q; want adamw, momentum or sgd", t.Optimizer)
	} else if err := t.config().Validate(); err != nil && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%w: %w", ErrTask, err))
	}
	return errors.Join(errs...)
}

func (t Task) config() train.Config {
	return train.Config{MicroBatches: t.MicroBatches, Optimizer: train.Optimizer{Method: t.Optimizer, Rate: t.Rate}, Seed: t.Seed}
}

// heads of the transformer.
const heads = 4

// Setup is a task made ready.
type Setup struct {
	Task     Task // with the data's hash
	Network  *train.Network
	Training data.Set
	Held     data.Set // every tenth sample, not trained on
	Config   train.Config
}

// Build reads the data and makes the network. Where DataHash is set, the data must still be those.
func (t Task) Build() (*Setup, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	all, hash, err := t.read()
	if err != nil {
		return nil, err
	}
	if t.DataHash != "" && t.DataHash != hash {
		return nil, fmt.Errorf("%w: %s has changed since the run began", ErrTask, t.Data)
	}
	t.DataHash = hash
	training, held := data.Split(all, 10)
	if held.Len() == 0 {
		return nil, fmt.Errorf("%w: %s has %d samples; want at least 10", ErrTask, t.Data, all.Len())
	}
	w := &Setup{Task: t, Training: training, Held: held, Config: t.config()}
	if w.Network, err = t.network(all); err != nil {
		return nil, err
	}
	weights := 0
	for _, p := range w.Network.Params() {
		if weights += p.Len(); weights < 0 || weights > maxWeights {
			return nil, fmt.Errorf("%w: a network of more than %d weights; choose a smaller size or depth", ErrTask, maxWeights)
		}
	}
	return w, nil
}

func (t Task) read() (s data.Set, hash string, err error) {
	switch t.Data {
	case Digits:
		s, err = data.Digits()
		return s, "", err
	case Synthetic:
		s, err = data.NewSynthetic(1_000_000, 64, 10, t.Seed)
		return s, "", err
	}
	f, err := os.Open(t.Data)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	h := xxh3.New()
	r := io.TeeReader(f, h)
	if t.text() {
		s, err = data.NewText(r, t.Data, t.Length)
	} else {
		s, err = data.CSV(r, t.Data)
	}
	return s, fmt.Sprintf("%016x", h.Sum64()), err
}

func (t Task) network(s data.Set) (*train.Network, error) {
	inputs, _, classes, tokens := s.Shape()
	switch t.Model {
	case Transformer:
		return train.Transformer(train.TransformerConfig{Tokens: tokens, Length: t.Length, Size: t.Size, Heads: heads, Blocks: t.Depth})
	case Convnet:
		var channels []int
		for i := range t.Depth {
			channels = append(channels, t.Size<<min(i, 6))
		}
		return train.Convnet(8, 8, 1, classes, channels...)
	}
	sizes := append([]int{inputs}, slices.Repeat([]int{t.Size}, t.Depth)...)
	return train.MLP(append(sizes, classes)...)
}

// Read reads a task's file; errors wrap ErrTask.
func Read(r io.Reader) (Task, error) {
	var t Task
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return t, err
	}
	if len(text) > maxFileBytes {
		return t, fmt.Errorf("%w: larger than %d bytes", ErrTask, maxFileBytes)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return t, fmt.Errorf("%w: %w", ErrTask, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return t, fmt.Errorf("%w: something follows the object", ErrTask)
	}
	return t, t.Validate()
}

// Save writes the file, in one piece or not at all.
func (t Task) Save(path string) error {
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(text, '\n'), 0o644)
}
