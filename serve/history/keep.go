package history

import (
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/internal/state"
)

// Keep is what must not be forgotten.
func (h *History) Keep() ([]byte, error) { return state.Encode(h) }

// Recall makes it what the kept one was, of a process group on c; nil: there is none. After an error it is empty.
func (h *History) Recall(kept []byte, c *cluster.Cluster) error {
	*h = History{cluster: c}
	err := state.Decode(kept, h)
	if err != nil {
		*h = History{}
	}
	return err
}
