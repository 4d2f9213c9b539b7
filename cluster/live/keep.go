package live

import "github.com/evenkeel/evenkeel/internal/state"

// Keep is what a generation must not forget, its cluster included.
func (g *Generation) Keep() ([]byte, error) { return state.Encode(g) }

// Recall makes a generation what the kept one was. It must have been begun with the same ranks; after an error it is of no use.
func (g *Generation) Recall(kept []byte) error {
	g.rounds = newRounds(g.cluster) // none, if there were none
	return state.Decode(kept, g)
}
