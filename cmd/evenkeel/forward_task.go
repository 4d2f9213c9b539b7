package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/evenkeel/evenkeel/forward"
	"github.com/evenkeel/evenkeel/train"
	"github.com/evenkeel/evenkeel/train/data"
)

// forwardTask is what every processor must make for itself: the network and the data. It stands in the header of logs and
// runs.
type forwardTask struct {
	Data   string `json:"data"`             // digits, or a file
	Hash   string `json:"hash,omitempty"`   // of the file
	Length int    `json:"length,omitempty"` // of a text's samples
	Model  string `json:"model"`
}

// heldOut: one sample in so many is for testing.
const heldOut = 5

// forwardWork is a task made.
type forwardWork struct {
	task           forwardTask
	net            *train.Network
	training, held data.Set
}

// load reads the data and builds the network. A task that has a hash is held to it.
func (t forwardTask) load() (*forwardWork, error) {
	set, hash, err := t.read()
	if err != nil {
		return nil, err
	}
	if t.Hash != "" && t.Hash != hash {
		return nil, badInputf("%s is not the file of this run: its hash is %s, the run's %s", t.Data, hash, t.Hash)
	}
	t.Hash = hash
	w := &forwardWork{task: t}
	w.training, w.held = data.Split(set, heldOut)
	inputs, targets, classes, tokens := set.Shape()
	if w.task.Model == "" {
		w.task.Model = "mlp:64"
		if tokens > 0 {
			w.task.Model = "transformer:64,4,2"
		}
	}
	if w.net, err = buildNetwork(w.task.Model, inputs, targets, classes, tokens); err != nil {
		return nil, badInputf("--model %s: %w", w.task.Model, err)
	}
	return w, nil
}

func (t forwardTask) read() (set data.Set, hash string, err error) {
	if t.Data == "digits" {
		set, err = data.Digits()
		return set, "", err
	}
	text, err := readLimited(t.Data, data.MaxFileBytes)
	if err != nil {
		return nil, "", opened(err)
	}
	hash = fmt.Sprintf("%016x", xxh3.Hash(text))
	if filepath.Ext(t.Data) == ".csv" {
		set, err = data.CSV(bytes.NewReader(text), t.Data)
	} else {
		set, err = data.NewText(bytes.NewReader(text), t.Data, t.Length)
	}
	if err != nil {
		return nil, "", badInput(err)
	}
	if set.Len() < heldOut {
		return nil, "", badInputf("%s holds %s; at least %d are needed", t.Data, count(set.Len(), "sample"), heldOut)
	}
	return set, hash, nil
}

// buildNetwork makes a network of a description: mlp:64,64 (hidden layers), convnet:8,16 (channels, of square images),
// transformer:64,4,2 (floats a token, heads, blocks).
func buildNetwork(model string, inputs, targets, classes, tokens int) (*train.Network, error) {
	kind, rest, _ := strings.Cut(model, ":")
	var sizes []int
	for _, s := range strings.Split(rest, ",") {
		if rest == "" {
			break
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1<<20 {
			return nil, fmt.Errorf("size %q; whole numbers from 1", s)
		}
		sizes = append(sizes, n)
	}
	switch {
	case kind == "transformer" && tokens > 0 && len(sizes) == 3:
		return train.Transformer(train.TransformerConfig{Tokens: tokens, Length: targets, Size: sizes[0], Heads: sizes[1], Blocks: sizes[2]})
	case kind == "transformer" && tokens > 0:
		return nil, fmt.Errorf("three sizes are needed: floats a token, heads, blocks")
	case tokens > 0:
		return nil, fmt.Errorf("text needs a transformer:SIZE,HEADS,BLOCKS")
	case kind == "mlp":
		return train.MLP(append(append([]int{inputs}, sizes...), classes)...)
	case kind == "convnet":
		side := 1
		for side*side < inputs {
			side++
		}
		if side*side != inputs {
			return nil, fmt.Errorf("samples of %d numbers are no square images", inputs)
		}
		return train.Convnet(side, side, 1, classes, sizes...)
	}
	return nil, fmt.Errorf("known: mlp:SIZES, convnet:CHANNELS for tables; transformer:SIZE,HEADS,BLOCKS for text")
}

// forwardHeader is a log's or run's header with its task made.
func forwardHeader(h forward.Header) (*forwardWork, error) {
	var t forwardTask
	if err := json.Unmarshal(h.Task, &t); err != nil {
		return nil, badInputf("the header's task: %w", err)
	}
	return t.load()
}
