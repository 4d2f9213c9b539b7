package sim

import (
	"math"
	"math/rand/v2"

	"evenkeel/cluster/trace"
)

// replay holds the places of a run's nodes in a trace. It has a generator of its own, so
// that the nodes' other draws stay the same.
type replay struct {
	job         *trace.Job // nil: nothing is replayed
	nodes       []replayed // not written after newReplay, so copies may share it
	pace, scale float64
	timed       bool // it advances by time
	round       int
}

// replayed is the worker that a node follows, and where it begins, in rounds of the
// trace from the job's first one on.
type replayed struct {
	worker *trace.Worker
	begin  float64
}

// newReplay draws one job of the trace for all nodes. Each node gets a worker of the job, in
// random order, repeated if there are more nodes than workers. The nodes of one order begin
// at the same random round, so that what the workers had in common stays.
func newReplay(c *trace.Replay, seed uint64, nodes int) replay {
	if c.Trace == nil || len(c.Trace.Jobs) == 0 {
		return replay{}
	}
	rng := rand.New(rand.NewPCG(seed, jobStream+2))
	r := replay{job: &c.Trace.Jobs[rng.IntN(len(c.Trace.Jobs))], timed: c.Timed, pace: c.Rate(), scale: c.Exponent(), nodes: make([]replayed, 0, nodes)}
	for len(r.nodes) < nodes {
		begin := rng.Float64() * float64(r.job.Last-r.job.First)
		order := rng.Perm(len(r.job.Workers))
		for _, k := range order[:min(len(order), nodes-len(r.nodes))] {
			r.nodes = append(r.nodes, replayed{&r.job.Workers[k], begin})
		}
	}
	return r
}

// slow slows all nodes in the coming round and advances by one round.
func (r *replay) slow(nodes []node) {
	if r.job == nil || r.timed {
		return
	}
	for i := range r.nodes {
		nodes[i].slowdown *= r.factor(i, float64(r.round)*r.pace)
	}
	r.round++
}

// factor is node i's, so many rounds of the trace after the begin.
func (r *replay) factor(i int, rounds float64) float64 {
	n := &r.nodes[i]
	f := n.worker.At(r.job.Turn(n.begin + rounds))
	if r.scale != 1 {
		f = min(max(math.Pow(f, r.scale), trace.LeastFactor), trace.MostFactor)
	}
	return f
}

// at is node i's factor at a time in nominal rounds, and until when it stays so: to the trace's next round.
func (r *replay) at(i int, t float64) (slow, until float64) {
	begin := r.nodes[i].begin
	next := math.Floor(begin+t*r.pace) + 1
	if until = (next - begin) / r.pace; until <= t { // by rounding
		next++
		until = (next - begin) / r.pace
	}
	return r.factor(i, (next-0.5)-begin), until
}
