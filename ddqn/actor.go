package ddqn

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// chunks are the numbers of rows for which an actor keeps memory, made on first use. 1,024 rows are as fast per
// row as more, and the intermediate results still fit the second-level cache.
var chunks = [...]int{1, 4, 16, 64, 256, 1024}

// Actor scores rows with its own copy of a network's weights, so that it can work in one goroutine while a Learner
// trains the network in another. Its methods may be called from several goroutines; they take turns. The result of
// a row depends on nothing but the row and the weights: not on the other rows nor on their number, bit for bit.
type Actor struct {
	mu      sync.Mutex
	net     *Network
	plain   *plain
	scorers [len(chunks)]*scorer
}

// NewActor copies the weights of net. Where objectives are named, by index in rising order, the actor scores only these,
// with the same bits, which saves time.
func NewActor(net *Network, objectives ...int) *Actor {
	own := net.Clone()
	return &Actor{net: own, plain: share(own, objectives...)}
}

// Sync copies the weights of net, which must not change meanwhile: call it from the goroutine that trains net,
// between two updates. The shapes must be equal, else ErrMismatch.
func (a *Actor) Sync(net *Network) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.net.copyFrom(net); err != nil {
		return fmt.Errorf("ddqn: sync actor: %w", err)
	}
	a.plain.refold(a.net)
	return nil
}

// Q scores n rows of Features values, row-major, and returns n x Actions x Objectives values, of the objectives named to
// NewActor if any were. The result is in dst if that is large enough, else in new memory; dst may be nil. Like the functions
// of gonum it panics if the length of rows is not a multiple of Features: that is a mistake in the calling code.
func (a *Actor) Q(dst, rows []float32) []float32 {
	features, outputs := a.net.spec.Features, a.plain.layers[len(a.plain.layers)-1].Out
	if len(rows)%features != 0 {
		panic(fmt.Sprintf("ddqn: Actor.Q got %d values, not a multiple of %d features", len(rows), features))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(rows) / features
	dst = slices.Grow(dst[:0], n*outputs)[:n*outputs]
	for out := dst; n > 0; {
		s := a.scorer(n)
		rows = rows[copy(s.x, rows):]
		out = out[copy(out, s.run()):]
		n -= len(s.x) / features
	}
	return dst
}

// scorer returns the one for the next chunk of n remaining rows: the largest one that they fill, or the next
// larger one if they fill more than half of it (surplus rows are computed and discarded).
func (a *Actor) scorer(n int) *scorer {
	i := 0
	for i+1 < len(chunks) && n > chunks[i+1]/2 {
		i++
	}
	if a.scorers[i] == nil {
		a.scorers[i] = newScorer(a.plain, chunks[i])
	}
	return a.scorers[i]
}

// Greedy returns the action with the largest weighted sum over the objectives r of w[r] Q[a][r], for one row of
// Actions x Objectives values. Ties go to the lowest index; a NaN is not chosen over a finite value.
func Greedy(q []float32, actions, objectives int, w []float32) int {
	best, bestValue := 0, float32(math.Inf(-1))
	w = w[:objectives]
	for a := range actions {
		var v float32
		for r, x := range q[a*objectives:][:objectives] {
			v += float32(w[r] * x)
		}
		if v > bestValue {
			best, bestValue = a, v
		}
	}
	return best
}
