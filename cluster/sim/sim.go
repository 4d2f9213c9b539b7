package sim

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
)

const (
	heartbeat     = 30 * time.Second // a node that hangs is noticed after this long
	restartRounds = 5                // a node that ran out of memory is back after so many rounds
)

// Simulator runs rounds in simulated time; it is a cluster.Runner. Create it with New.
type Simulator struct {
	cluster    *cluster.Cluster
	conditions cluster.Conditions
	collect    cluster.Collect // of the round under way
	nodes      []node
	jobs       []job
	queue      queue
	now        time.Duration
	round      int
	seen       float64 // counted samples since the start
	present    []bool
	truth      cluster.Truth
	report     cluster.Report
	trace      func(node int, event string) // for tests; nil: nobody listens
}

// job is the work a node is doing, possibly since an earlier round.
type job struct {
	busy    bool
	dies    bool // the event at the end of it is the node's failure
	oom     bool
	absence int // rounds the node stays away if it dies without being out of memory
	size    int
	round   int           // of the model it computes on
	opened  time.Duration // time of that model
	start   time.Duration
}

// New simulates c under conditions. The seed decides everything random. Conditions
// must be valid, and every node needs a profile, shown or hidden.
func New(c *cluster.Cluster, conditions cluster.Conditions, seed uint64) *Simulator {
	count := len(c.Nodes)
	s := &Simulator{
		cluster: c, conditions: conditions,
		nodes: make([]node, count), jobs: make([]job, count), present: make([]bool, count),
		queue:  queue{at: make([]time.Duration, count), sequence: make([]uint64, count)},
		truth:  cluster.Truth{Slowdown: make([]float64, count), Noise: make([]float64, count), Left: make([]float64, count)},
		report: cluster.Report{Nodes: make([]cluster.NodeReport, count)},
	}
	for i := range s.nodes {
		constant := c.Nodes[i].Hidden.Slowdown
		if constant == 0 {
			constant = 1
		}
		s.nodes[i] = newNode(&s.conditions, constant, seed, i, count)
	}
	s.look()
	return s
}

// Present says which nodes take work in the next round; valid until that round.
func (s *Simulator) Present() []bool { return s.present }

// Truth is the nodes' real state in the round about to run; valid until that round.
func (s *Simulator) Truth() cluster.Truth { return s.truth }

// Now is the simulated time since the start.
func (s *Simulator) Now() time.Duration { return s.now }

// look refreshes what is shown of the round about to run.
func (s *Simulator) look() {
	for i := range s.nodes {
		n := &s.nodes[i]
		s.present[i] = n.away == 0
		s.truth.Slowdown[i], s.truth.Noise[i], s.truth.Left[i] = n.slowdown, n.noise, 0
		if s.jobs[i].busy {
			s.truth.Left[i] = (s.queue.at[i] - s.now).Seconds()
		}
	}
}

// Round carries out a plan. A present node must get at least one sample. If ctx is done
// it returns its error and the simulator stays as it was.
func (s *Simulator) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	sizes := plan.Sizes
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: round %d: %w", s.round, err)
	}
	if len(sizes) != len(s.nodes) {
		return nil, fmt.Errorf("sim: %d sizes for %d nodes", len(sizes), len(s.nodes))
	}
	expected := 0
	for i := range s.nodes {
		if !s.present[i] {
			continue
		}
		if sizes[i] < 1 {
			return nil, fmt.Errorf("sim: round %d: node %s got micro-batch %d; every present node needs at least 1", s.round, s.cluster.Nodes[i].Name, sizes[i])
		}
		expected++
	}
	s.begin()
	s.collect = plan.Collect
	round := s.collect.Open(s.now, expected)
	for i := range s.nodes {
		if s.present[i] && !s.jobs[i].busy {
			s.start(i, sizes[i], s.now)
		}
	}
	for {
		if _, closed := round.Closed(); closed {
			break
		}
		deadline, limited := round.Deadline()
		if s.queue.Len() == 0 || limited && s.queue.at[s.queue.nodes[0]] > deadline {
			// With nothing under way there is always a deadline: every node is in, lost or refused otherwise.
			s.giveUp(deadline)
			round.Expire()
			break
		}
		i := s.queue.pop()
		s.now = s.queue.at[i]
		s.arrive(&round, i, sizes[i])
	}
	end, _ := round.Closed()
	s.finish(end)
	return &s.report, nil
}

// Work appends what the nodes will do in the round about to run if they get sizes,
// noise included: for training rewards only. Nodes that will fail in it are left out.
func (s *Simulator) Work(work []cluster.Work, sizes []int) []cluster.Work {
	for i := range s.nodes {
		j := &s.jobs[i]
		switch {
		case !s.present[i]:
		case j.busy && j.dies, !j.busy && (s.nodes[i].fails >= 0 || sizes[i] > s.cluster.Nodes[i].Limit):
		case j.busy:
			at, took := s.truth.Left[i], s.seconds(i, sizes[i])
			work = append(work, cluster.Work{
				At: at, Took: (s.queue.at[i] - j.start).Seconds(), Size: j.size, Behind: s.round - j.round,
				NextAt: at + took, NextTook: took, NextSize: sizes[i], Power: s.cluster.Nodes[i].Power,
			})
		default:
			took := s.seconds(i, sizes[i])
			work = append(work, cluster.Work{At: took, Took: took, Size: sizes[i], Power: s.cluster.Nodes[i].Power})
		}
	}
	return work
}

// begin clears the report.
func (s *Simulator) begin() {
	s.report.Round, s.report.Start, s.report.Wait, s.report.Accepted, s.report.Counted = s.round, s.now, 0, 0, 0
	for i := range s.report.Nodes {
		s.report.Nodes[i] = cluster.NodeReport{}
		if s.present[i] {
			s.report.Nodes[i].Status = cluster.Late // until its gradient is in
		}
	}
}

// seconds is how long node i takes for size samples in the round about to run.
func (s *Simulator) seconds(i, size int) float64 {
	n, resources := &s.nodes[i], &s.cluster.Nodes[i]
	p := resources.Hidden.Profile
	if p == nil {
		p = resources.Profile
	}
	return p.Seconds(float64(size))*n.slowdown*max(n.factor, 0.05) + resources.Network
}

// start gives node i work on this round's model at time at.
func (s *Simulator) start(i, size int, at time.Duration) {
	n, resources, j := &s.nodes[i], &s.cluster.Nodes[i], &s.jobs[i]
	took := s.seconds(i, size)
	*j = job{busy: true, size: size, round: s.round, opened: s.report.Start, start: at}
	switch {
	case size > resources.Limit:
		// Memory runs out while activations pile up, in the forward pass.
		took, j.dies, j.oom = took/3, true, true
	case n.fails >= 0:
		took, j.dies, j.absence = took*n.fails, true, n.absence
		if n.silent {
			took += heartbeat.Seconds()
		}
	}
	s.queue.push(i, after(at, took))
}

// after is t plus seconds, at the end of the clock rather than beyond it.
func after(t time.Duration, seconds float64) time.Duration {
	if left := math.MaxInt64 - t; seconds*1e9 >= float64(left) {
		return math.MaxInt64
	}
	return t + time.Duration(seconds*1e9)
}

// arrive handles the end of node i's work: its gradient, or its failure.
func (s *Simulator) arrive(round *cluster.Round, i, size int) {
	n, j, r := &s.nodes[i], &s.jobs[i], &s.report.Nodes[i]
	j.busy = false
	if j.dies {
		round.Lose(s.now)
		r.Status, r.OOM = cluster.Lost, j.oom
		s.note(i, "fails")
		n.away = 1 + restartRounds // the round under way does not count
		if !j.oom {
			n.away = 1 + j.absence
		}
		return
	}
	verdict := round.Receive(s.now, j.opened)
	s.note(i, verdict.String())
	r.Size, r.Seconds, r.Age, r.Behind = j.size, n.unseen.stamped((s.now - j.start).Seconds()), n.unseen.stamped((s.now - j.opened).Seconds()), s.round-j.round
	if verdict == cluster.Stale {
		if r.Status != cluster.In {
			r.Status = cluster.Refused
		}
	} else {
		r.Status = cluster.In
		r.Samples += j.size
		s.report.Accepted += j.size
		s.report.Counted += float64(j.size) * cluster.Credit(r.Behind)
		if verdict == cluster.Aged {
			r.Aged += j.size
		}
	}
	if _, closed := round.Closed(); !closed && j.opened != s.report.Start {
		s.start(i, size, s.now) // it came in late and now takes up this round's work
	}
}

// giveUp drops the nodes that were silent in a round that times out: they are
// restarted. A deadline that is the end of the grace duration drops nobody.
func (s *Simulator) giveUp(deadline time.Duration) {
	if t := s.collect.Timeout; t == 0 || deadline-s.report.Start < t {
		return
	}
	s.now = deadline
	for i := range s.jobs {
		if s.jobs[i].busy && s.report.Nodes[i].Status == cluster.Late {
			s.queue.remove(i)
			s.jobs[i].busy = false
			s.nodes[i].away = 1 + restartRounds
			s.report.Nodes[i].Status = cluster.Lost
			s.note(i, "given up")
		}
	}
}

func (s *Simulator) note(node int, event string) {
	if s.trace != nil {
		s.trace(node, event)
	}
}

// finish closes the books of the round and moves every node to the next one.
func (s *Simulator) finish(end time.Duration) {
	s.report.Wait = end - s.report.Start
	s.energy(end)
	s.now = end
	scale := s.Scale()
	for i := range s.report.Nodes {
		r, j := &s.report.Nodes[i], &s.jobs[i]
		switch {
		case r.Status == cluster.In || r.Status == cluster.Refused:
			r.Norm, r.Agree = s.gradient(scale, r.Size)
			if !j.busy {
				r.Idle = max(0, (end - s.queue.at[i]).Seconds())
			}
		case r.Status == cluster.Late:
			r.Size, r.Seconds = j.size, (end - j.start).Seconds()
		}
		if j.busy {
			r.Busy, r.BusySize = (end - j.start).Seconds(), j.size
		}
	}
	s.seen += s.report.Counted
	s.round++
	for i := range s.nodes {
		s.nodes[i].advance(&s.conditions)
	}
	s.look()
}

// Scale is the gradient noise scale in samples; 0 when the conditions have none.
func (s *Simulator) Scale() float64 {
	c := s.conditions.Scale
	if c.Start == 0 {
		return 0
	}
	batch := float64(s.cluster.GlobalBatch)
	part := min(s.seen/(batch*c.Rounds), 1)
	return batch * c.Start * math.Pow(c.End/c.Start, part)
}

// Efficiency is the statistical efficiency of a round that counted n samples, over
// one of the global batch: (scale+B)/(scale+n), as in Pollux.
func (s *Simulator) Efficiency(n float64) float64 {
	scale := s.Scale()
	if scale == 0 {
		return 1
	}
	return (scale + float64(s.cluster.GlobalBatch)) / (scale + n)
}

// gradient is the expected norm of a gradient over size samples relative to the
// aggregate's, and their cosine, at the given noise scale.
func (s *Simulator) gradient(scale float64, size int) (norm, agree float64) {
	if scale == 0 {
		return 1, 1
	}
	own := math.Sqrt(1 + scale/float64(size))
	all := math.Sqrt(1 + scale/float64(max(s.report.Accepted, size)))
	return own / all, all / own
}
