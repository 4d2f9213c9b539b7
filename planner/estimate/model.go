package estimate

import (
	_ "embed" // the models known by name
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
)

// ErrModel is wrapped by errors about models. It is bad input.
var ErrModel = badinput.New("estimate: invalid model")

// Model is the shape of a transformer that predicts the next token.
type Model struct {
	Name                   string
	Layers, Hidden         int
	Heads, KV, Head        int // attention heads, those with keys and values of their own, elements of each
	Inner                  int // of the network after attention; of a mixture, of an expert
	Gated                  bool
	Experts, Active        int // of a mixture: experts of a layer, and those that a token goes to; 0: none
	Shared                 int // elements of the expert that every token goes to, inside
	Vocabulary, Longest    int // Longest: tokens of a sample, at most
	Tied, Learned, biasQKV bool
}

// family is what the type of a model says that its config need not.
type family struct {
	plain, tied, learned, biasQKV bool // plain: no gate, and biases everywhere; learned: positions have parameters
}

var families = map[string]family{
	"llama": {}, "mistral": {}, "mixtral": {}, "phi3": {}, "qwen2": {biasQKV: true}, "qwen2_moe": {biasQKV: true}, "qwen3": {}, "qwen3_moe": {}, "olmo2": {}, "olmoe": {},
	"granite": {}, "gemma": {tied: true}, "gemma2": {tied: true}, "gpt2": {plain: true, tied: true, learned: true}, "gpt_neo": {plain: true, tied: true, learned: true},
	"gpt_neox": {plain: true}, "opt": {plain: true, tied: true, learned: true}, "starcoder2": {plain: true, tied: true},
}

//go:embed models.json
var known []byte

// Load reads a model's config.json, or a model known by name.
func Load(path string) (*Model, error) {
	var models map[string]json.RawMessage
	if err := json.Unmarshal(known, &models); err != nil {
		return nil, fmt.Errorf("estimate: models.json: %w", err)
	}
	if text, ok := models[path]; ok {
		return Read(text, path)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, `/\.`) {
		return nil, fmt.Errorf("%w: %.60q is no file, nor one of %s; give the path of a config.json", ErrModel, path, strings.Join(slices.Sorted(maps.Keys(models)), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("estimate: %w", err)
	}
	return Read(text, path)
}

// Read reads a config.json. Errors wrap ErrModel and name the field.
func Read(text []byte, name string) (*Model, error) {
	c := config{name: name}
	if err := json.Unmarshal(text, &c.fields); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrModel, err)
	}
	if inner, ok := c.fields["text_config"].(map[string]any); ok { // of a model that sees, too
		c.fields = inner
	}
	kind, _ := c.fields["model_type"].(string)
	f, ok := families[strings.TrimSuffix(kind, "_text")]
	if !ok {
		return nil, fmt.Errorf("%s: %w: model_type is %.40q; known are %s: take the shape of the most similar one, or measure the layers", name, ErrModel, kind, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	short := strings.TrimSuffix(filepath.Base(name), ".json")
	if folder := filepath.Base(filepath.Dir(name)); short == "config" && folder != "." {
		short = folder
	}
	m := &Model{Name: short, Gated: !f.plain, Tied: f.tied, Learned: f.learned, biasQKV: f.biasQKV}
	m.Hidden = c.count(0, "hidden_size", "n_embd")
	m.Layers = c.count(0, "num_hidden_layers", "n_layer", "num_layers")
	m.Heads = c.count(0, "num_attention_heads", "n_head", "num_heads")
	m.Vocabulary = c.count(0, "vocab_size")
	m.KV = c.count(m.Heads, "num_key_value_heads")
	m.Head = c.count(m.Hidden/max(1, m.Heads), "head_dim")
	m.Longest = c.count(2048, "max_position_embeddings", "n_positions")
	if m.Experts = c.count(-1, "num_local_experts", "num_experts"); m.Experts > 0 {
		m.Active = c.count(0, "num_experts_per_tok")
		m.Inner = c.count(-1, "moe_intermediate_size")
		m.Shared = max(0, c.count(-1, "shared_expert_intermediate_size"))
	}
	m.Experts = max(0, m.Experts)
	if m.Inner <= 0 {
		preset := 0
		if f.plain {
			preset = 4 * m.Hidden
		}
		m.Inner = c.count(preset, "intermediate_size", "n_inner", "ffn_dim")
	}
	if tied, ok := c.fields["tie_word_embeddings"].(bool); ok {
		m.Tied = tied
	}
	if step := c.count(1, "decoder_sparse_step"); step != 1 {
		c.fail("decoder_sparse_step is %d; only models whose layers are all alike are estimated", step)
	}
	if m.Heads > 0 && m.KV > 0 && m.Heads%m.KV != 0 {
		c.fail("num_key_value_heads is %d; must divide the %d heads", m.KV, m.Heads)
	}
	if m.Active > m.Experts {
		c.fail("num_experts_per_tok is %d of %d experts", m.Active, m.Experts)
	}
	return m, c.err
}

// config is a config.json, with the first fault found in it.
type config struct {
	name   string
	fields map[string]any
	err    error
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w: %s", c.name, ErrModel, fmt.Sprintf(format, args...))
	}
}

// count is the first of the fields that is given. Without one it is preset; 0: one is required.
func (c *config) count(preset int, names ...string) int {
	const most = 1 << 30
	for _, n := range names {
		v, given := c.fields[n]
		if !given || v == nil {
			continue
		}
		x, ok := v.(float64)
		if !ok || x != float64(int(x)) || x < 1 || x > most {
			c.fail("%s is %v; must be a whole number in 1..%d", n, v, most)
			return 1
		}
		return int(x)
	}
	if preset == 0 {
		c.fail("%s is missing", strings.Join(names, " or "))
		return 1
	}
	return preset
}

// blockParameters are the elements of a layer, and those of them in experts.
func (m *Model) blockParameters() (all, experts float64) {
	h, inner, attention := float64(m.Hidden), float64(m.Inner), float64(m.Heads*m.Head)
	keys := float64(m.KV * m.Head)
	all = 2*h*(attention+keys) + 2*h // queries and output, keys and values, norms
	network := m.matrices() * h * inner
	if m.Experts > 0 {
		experts = float64(m.Experts) * network
		all += h*float64(m.Experts) + m.matrices()*h*float64(m.Shared) + experts
	} else {
		all += network
	}
	if !m.Gated {
		all += 2*h + attention + 2*keys + h + inner + h // of norms, queries, keys and values, output, network
	} else if m.biasQKV {
		all += attention + 2*keys
	}
	return all, experts
}

// matrices of a network or an expert.
func (m *Model) matrices() float64 {
	if m.Gated {
		return 3
	}
	return 2
}

// embedding is the elements that go in front of the first layer.
func (m *Model) embedding() float64 {
	tokens := m.Vocabulary
	if m.Learned {
		tokens += m.Longest
	}
	return float64(tokens) * float64(m.Hidden)
}

// Parameters are the elements of the model, those that are shared once.
func (m *Model) Parameters() float64 {
	block, _ := m.blockParameters()
	all := m.embedding() + float64(m.Layers)*block + float64(m.Hidden)
	if !m.Gated {
		all += float64(m.Hidden)
	}
	if !m.Tied {
		all += float64(m.Vocabulary) * float64(m.Hidden)
	}
	return all
}
