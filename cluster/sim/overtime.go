package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"evenkeel/cluster"
)

// overtimeStream is the first stream of the generators that draw the noise after a deadline, one for every node
// and round.
const overtimeStream = 1 << 44

// keep remembers where a node's accumulation ended, if it may go on after the deadline.
func (s *Simulator) keep(i int, a *cluster.Accumulation, overtime float64) {
	if overtime <= 0 {
		return
	}
	if s.works == nil {
		s.works = make([]cluster.Accumulation, len(s.nodes))
	}
	s.works[i] = *a
}

// overtime lets nodes that are done at the deadline of the open round go on until the last one
// is done too, or its failure is noticed. It changes when their gradients come and how many
// samples they have. A node whose gradient takes longer to arrive than that of the last node
// does not go on, because it would be the last itself. If a node is at work of an older round,
// no node goes on.
func (s *Simulator) overtime(collect *cluster.Collect) {
	if collect.Overtime <= 0 || collect.Deadline <= 0 || s.works == nil {
		return
	}
	open, last := s.recorder.Report().Start, -1
	for i := range s.nodes {
		if !s.jobs[i].queued {
			continue
		}
		if share, busy := s.recorder.Share(i); !busy || share.Round != s.round {
			return
		}
		if last < 0 || s.queue.at[i] > s.queue.at[last] {
			last = i
		}
	}
	if last < 0 || s.queue.at[last] <= later(open, collect.Deadline) {
		return
	}
	way := s.cluster.Nodes[last].Network
	until := (s.queue.at[last] - open).Seconds() - way
	for i := range s.nodes {
		if j := &s.jobs[i]; j.queued && !j.dies && s.cluster.Nodes[i].Network <= way {
			s.goOn(i, open, collect.Deadline.Seconds()-s.cluster.Nodes[i].Network, until)
		}
	}
	s.queue.move()
}

// later is t + d, at the end of the clock rather than beyond it.
func later(t, d time.Duration) time.Duration { return t + min(d, math.MaxInt64-t) }

// goOn lets node i work between two moments, until the last node is done. Times are seconds from
// the opening of the round.
func (s *Simulator) goOn(i int, open time.Duration, from, last float64) {
	ahead := s.future(i)
	a, n, j, way := &s.works[i], &s.nodes[i], &s.jobs[i], s.cluster.Nodes[i].Network
	done := (s.queue.at[i] - open).Seconds() - way
	from = max(from, done)
	s.within.Seed(s.seed+uint64(s.round)*0x9e3779b97f4a7c15, overtimeStream+uint64(i))
	rng, now, own := rand.New(&s.within), from, n.noise*math.Sqrt(s.conditions.NoiseWithin)
	for now < last {
		size := a.More(now)
		if size == 0 {
			break
		}
		took := ahead.stretch(now, s.profile(i).Seconds(float64(size))*n.slowdown*max(n.factor-n.spike+withinRound(own, rng), least))
		a.Done(size, took)
		now += took
	}
	if now > from {
		j.samples, j.steps = a.Samples()
		j.paused = from - done
		s.queue.at[i] = after(open, now+way)
	}
}
