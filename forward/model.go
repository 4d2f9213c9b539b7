package forward

import (
	"fmt"

	"evenkeel/train"
	"evenkeel/train/data"
)

// tileFloats is the number of weights that are converted to floats at a time; wider layers need a row.
const tileFloats = 1 << 14

// network is a Model of train's layers. It serves one goroutine.
type network struct {
	net    *train.Network
	pass   *train.Pass
	tile   []float32
	losses [2]float64
}

// NewModel returns a network's Model for one processor: it has memory of its own.
func NewModel(net *train.Network) Model {
	return &network{net: net, tile: make([]float32, max(tileFloats, net.TileSize()))}
}

func (n *network) Losses(w *Weights, b train.Batch) ([2]float32, error) {
	samples := len(b.Targets) / n.net.Positions()
	if n.pass == nil || n.pass.Samples() != samples {
		pass, err := n.net.NewPass(samples, false)
		if err != nil {
			return [2]float32{}, fmt.Errorf("forward: %w", err)
		}
		n.pass = pass
	}
	if err := n.pass.StreamLosses(w, n.tile, b, n.losses[:]); err != nil {
		return [2]float32{}, fmt.Errorf("forward: %w", err)
	}
	return [2]float32{float32(n.losses[0]), float32(n.losses[1])}, nil
}

// Evaluate returns the share of right predictions over a set, and the mean loss.
func Evaluate(net *train.Network, w *Weights, set data.Set) (accuracy, loss float64, err error) {
	right, loss, err := net.Evaluate(w.Values(net), set)
	if err != nil {
		return 0, 0, fmt.Errorf("forward: %w", err)
	}
	return float64(right) / float64(set.Len()*net.Positions()), loss, nil
}
