package forward

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"evenkeel/internal/badinput"
)

// Errors of headers.
var (
	// ErrConfig is returned for an invalid configuration.
	ErrConfig = badinput.New("forward: invalid run")
	// ErrWeights is returned for weights that differ from the run's, at its start or after a block, or that cannot be trained.
	ErrWeights = badinput.New("forward: wrong weights")
)

// Where a run's first weights come from.
const (
	FromKey  = "key"  // drawn from the run's key
	FromFile = "file" // a file that all processors have
)

// version of header, log and messages: docs/reference/forward-protocol.md.
const version = 5

// Header is what all processors of a run agree on.
type Header struct {
	Version int             `json:"version"`
	Config  Config          `json:"config"`
	Data    Examples        `json:"data"`
	Initial string          `json:"initial"` // FromKey or FromFile
	Tensors []Tensor        `json:"tensors"`
	Frozen  string          `json:"frozen,omitempty"`  // hash of tensors that the model uses and does not train
	Program json.RawMessage `json:"program,omitempty"` // data of the program that created the run
}

// Examples are the training data, the same for all processors.
type Examples struct {
	Count int    `json:"count"`
	Hash  string `json:"hash,omitempty"`
}

// Tensor is one of the tensors that a run trains.
type Tensor struct {
	Name  string  `json:"name"`
	Shape []int   `json:"shape"`
	Shift uint    `json:"shift"` // its entries are whole numbers of 2^(Shift-24)
	Mean  float64 `json:"mean"`
	Std   float64 `json:"std"`  // of its first entries, with Mean, if they are drawn from the key
	Hash  string  `json:"hash"` // of its first entries
}

func (t *Tensor) len() int {
	n := 1
	for _, s := range t.Shape {
		n *= s
	}
	return n
}

// NewHeader returns the header of a run that begins with weights w.
func NewHeader(c Config, examples Examples, initial string, w *Weights) Header {
	return Header{Version: version, Config: c, Data: examples, Initial: initial, Tensors: w.manifest()}
}

// validate refuses a header that no run can have.
func (h *Header) validate() error {
	switch {
	case h.Version != version:
		return fmt.Errorf("%w: version %d; this program takes part in runs of version %d", ErrConfig, h.Version, version)
	case h.Data.Count < 1 || h.Data.Count >= 1<<32:
		return fmt.Errorf("%w: data.count is %d; 1 to 2^32 - 1", ErrConfig, h.Data.Count)
	case h.Initial != FromKey && h.Initial != FromFile:
		return fmt.Errorf("%w: initial is %q; %s or %s", ErrConfig, h.Initial, FromKey, FromFile)
	case len(h.Tensors) == 0:
		return fmt.Errorf("%w: tensors is empty", ErrConfig)
	}
	for i, t := range h.Tensors {
		room := maxEntries
		for _, s := range t.Shape {
			if s < 1 || s > room {
				return fmt.Errorf("%w: tensors[%d] (%s): shape %v; at least 1 each, at most %d entries in all", ErrConfig, i, t.Name, t.Shape, maxEntries)
			}
			room /= s
		}
		if t.Shift > unitBits {
			return fmt.Errorf("%w: tensors[%d] (%s): shift is %d; 0 to %d", ErrConfig, i, t.Name, t.Shift, unitBits)
		}
	}
	return h.Config.Validate()
}

// maxEntries is the largest number of entries of a tensor.
const maxEntries = 1 << 32

// Check returns ErrWeights for weights other than the run's first, and names the first tensor that differs.
func (h *Header) Check(w *Weights) error {
	mine := w.manifest()
	for i, t := range h.Tensors {
		if i >= len(mine) {
			return fmt.Errorf("%w: the run has %d tensors, this network %d; tensor %s is missing", ErrWeights, len(h.Tensors), len(mine), t.Name)
		}
		m := mine[i]
		switch {
		case m.Name != t.Name || !slices.Equal(m.Shape, t.Shape):
			return fmt.Errorf("%w: tensor %d is %s %v in the run, %s %v here", ErrWeights, i, t.Name, t.Shape, m.Name, m.Shape)
		case m.Shift != t.Shift:
			return fmt.Errorf("%w: tensor %s has units of 2^%d in the run, of 2^%d here", ErrWeights, t.Name, int(t.Shift)-unitBits, int(m.Shift)-unitBits)
		case m.Hash != t.Hash:
			return fmt.Errorf("%w: tensor %s begins with other values in the run (hash %.16s) than here (%.16s): give all processors the same file and version", ErrWeights, t.Name, t.Hash, m.Hash)
		}
	}
	if len(mine) > len(h.Tensors) {
		return fmt.Errorf("%w: the run has %d tensors, this network %d; tensor %s is not in the run", ErrWeights, len(h.Tensors), len(mine), mine[len(h.Tensors)].Name)
	}
	return nil
}

const (
	logMagic       = "EKFWDLG5" // ends in the version
	headerHead     = len(logMagic) + 4
	maxHeaderBytes = 1 << 20
	chainBytes     = 16
)

// chain returns the hash that ends a part of a log.
func chain(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)[:chainBytes]
}

// Encode returns the header's bytes, with which a log and a run's stream begin.
func (h *Header) Encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("forward: header: %w", err)
	}
	b := binary.LittleEndian.AppendUint32([]byte(logMagic), uint32(len(text)))
	b = append(b, text...)
	return append(b, chain(b)...), nil
}

// DecodeHeader reads what Encode wrote. Errors wrap ErrLog or ErrConfig.
func DecodeHeader(b []byte) (*Header, error) {
	switch {
	case len(b) < headerHead || string(b[:7]) != logMagic[:7]:
		return nil, fmt.Errorf("%w: not a log of forward-only training", ErrLog)
	case string(b[:8]) != logMagic:
		return nil, fmt.Errorf("%w: format version %q, this program reads %q", ErrLog, b[7], logMagic[7])
	}
	n := int(binary.LittleEndian.Uint32(b[len(logMagic):]))
	if n > maxHeaderBytes || len(b) != headerHead+n+chainBytes {
		return nil, fmt.Errorf("%w: a header of %d bytes in %d", ErrLog, n, len(b))
	}
	if !bytes.Equal(chain(b[:headerHead+n]), b[headerHead+n:]) {
		return nil, fmt.Errorf("%w: header: checksum differs", ErrLog)
	}
	var h Header
	if err := json.Unmarshal(b[headerHead:headerHead+n], &h); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrConfig, err)
	}
	return &h, h.validate()
}
