package forward

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"slices"

	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
	"evenkeel/internal/badinput"
	"evenkeel/train"
	"evenkeel/train/task"
)

// program is this program's part of a run's header.
type program struct {
	Task      *task.Task `json:"task,omitempty"`
	StopAfter int        `json:"stop_after,omitempty"` // steps; 0: the run does not stop by validation
}

// errOther is returned for the header of a run that another program made.
var errOther = badinput.New("the run was made by another program, and does not name a network that this one can build")

// taskOf builds the data and the network that the header of a log or run describes. Each processor does so itself; how
// to train is in the header.
func taskOf(h *forward.Header, dataFile string) (*setup, error) {
	var p program
	if err := json.Unmarshal(h.Program, &p); err != nil || p.Task == nil {
		return nil, errOther
	}
	if dataFile != "" {
		p.Task.Data = dataFile
	}
	w, err := p.Task.Build()
	if err != nil {
		return nil, cli.FileError(err)
	}
	return setAside(w, p.StopAfter), nil
}

// stopAfter returns the stop_after of a run of this program, or 0.
func stopAfter(h *forward.Header) int {
	var p program
	if json.Unmarshal(h.Program, &p) != nil {
		return 0
	}
	return p.StopAfter
}

// tensorsOf returns a network's tensors.
func tensorsOf(net *train.Network) []forward.Tensor {
	var all []forward.Tensor
	for _, p := range net.Params() {
		all = append(all, forward.Tensor{Name: p.Name, Shape: p.Shape})
	}
	return all
}

// initialWeights returns the weights that a run begins with, from its header or the file of --init.
func initialWeights(h *forward.Header, init string) (*forward.Weights, error) {
	if h.Initial == forward.FromKey {
		return h.Drawn()
	}
	if init == "" {
		return nil, badinput.Errorf("the run began with the weights of a file: name it with --init")
	}
	w, err := readWeights(init, h.Tensors)
	if err == nil {
		err = h.Check(w)
	}
	if err != nil {
		return nil, badinput.Errorf("--init %s: %w", init, err)
	}
	return w, nil
}

// readWeights reads tensors from a file, by name. It ignores others in the file.
func readWeights(path string, tensors []forward.Tensor) (*forward.Weights, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, cli.FileError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	arrays, _, err := checkpoint.ReadSafetensors(f, info.Size())
	if err != nil {
		return nil, badinput.Errorf("%s cannot be read as safetensors: %w", path, err)
	}
	byName := map[string]*checkpoint.Array{}
	for i := range arrays {
		byName[arrays[i].Name] = &arrays[i]
	}
	values := make([][]float32, len(tensors))
	for i, t := range tensors {
		a := byName[t.Name]
		if a == nil {
			return nil, badinput.Errorf("%s: tensor %s is missing; the network needs it with shape %v", path, t.Name, t.Shape)
		}
		if !slices.Equal(a.Shape, t.Shape) {
			return nil, badinput.Errorf("%s: tensor %s has shape %v; the network needs %v", path, t.Name, a.Shape, t.Shape)
		}
		if values[i], err = floatsOf(a); err != nil {
			return nil, badinput.Errorf("%s: tensor %s: %w", path, t.Name, err)
		}
	}
	w, err := forward.FromFloats(tensors, values)
	if err != nil {
		return nil, badinput.Errorf("%s: %w", path, err)
	}
	return w, nil
}

// floatsOf returns an array's values.
func floatsOf(a *checkpoint.Array) ([]float32, error) {
	switch a.DType {
	case checkpoint.F32:
		values := make([]float32, len(a.Data)/4)
		return values, binary.Read(bytes.NewReader(a.Data), binary.LittleEndian, values)
	case checkpoint.BF16: // the upper half of a float32
		values := make([]float32, len(a.Data)/2)
		for i := range values {
			values[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(a.Data[2*i:])) << 16)
		}
		return values, nil
	}
	return nil, errors.New("its type is not F32 or BF16; convert the file")
}

// exportWeights writes float32 tensors.
func exportWeights(path string, w *forward.Weights, step int) error {
	var arrays []checkpoint.Array
	err := w.Float32(func(t forward.Tensor, values []float32) error {
		b := make([]byte, 0, 4*len(values))
		for _, x := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		arrays = append(arrays, checkpoint.Array{Name: t.Name, Kind: checkpoint.Parameter, DType: checkpoint.F32, Shape: t.Shape, Data: b})
		return nil
	})
	if err != nil {
		return err
	}
	return cli.WriteFile(path, func(to io.Writer) error {
		return checkpoint.WriteSafetensors(to, arrays, checkpoint.State{Step: uint64(step)})
	})
}
