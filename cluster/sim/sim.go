package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"evenkeel/cluster"
)

const (
	heartbeat     = 30 * time.Second // a node that hangs is noticed after this long
	restartRounds = 5                // rounds until a node that ran out of memory is back
)

// Simulator runs rounds in simulated time; it is a cluster.Runner. Create it with New.
type Simulator struct {
	cluster    *cluster.Cluster
	conditions cluster.Conditions
	nodes      []node
	jobs       []job
	queue      queue
	now        time.Duration
	round      int
	seen       float64 // counted samples since the start
	straggler  straggler
	replay     replay
	clock      clock
	seed       uint64
	within     rand.PCG        // of the noise within a round; seeded for every use
	orders     []cluster.Order // of the round
	taking     []bool          // nodes that take part in the round
	present    []bool
	truth      cluster.Truth
	recorder   cluster.Recorder
	works      []cluster.Accumulation       // of the round; nil: nobody goes on after a deadline
	trace      func(node int, event string) // for tests; nil: nobody listens
}

// job is how a node's work will end; what the work is, the recorder knows.
type job struct {
	samples int  // that it will hand in
	steps   int  // micro-steps that they take
	queued  bool // the event at the end of it is still to come
	dies    bool // the event at the end of it is the node's failure
	oom     bool
	absence int     // rounds the node stays away if it dies without being out of memory
	paused  float64 // seconds without work before it went on after the deadline
}

// New simulates c under conditions. The seed decides everything random. Conditions
// must be valid, and every node needs a profile, shown or hidden.
func New(c *cluster.Cluster, conditions cluster.Conditions, seed uint64) *Simulator {
	count := len(c.Nodes)
	s := &Simulator{
		cluster: c, conditions: ofRun(&conditions, seed), straggler: newStraggler(&conditions.Straggler, seed, count),
		replay: newReplay(&conditions.Replay, seed, count),
		nodes:  make([]node, count), jobs: make([]job, count), present: make([]bool, count),
		seed: seed, orders: make([]cluster.Order, count), taking: make([]bool, count),
		queue:    queue{at: make([]time.Duration, count)},
		truth:    cluster.Truth{Slowdown: make([]float64, count), Noise: make([]float64, count), Factor: make([]float64, count), Left: make([]float64, count), Pause: make([]float64, count)},
		recorder: *cluster.NewRecorder(c),
	}
	for i := range s.nodes {
		constant := cmp.Or(c.Nodes[i].Hidden.Slowdown, 1)
		s.nodes[i] = newNode(&s.conditions, constant, seed, i, count)
	}
	if s.clock = newClock(c, &s.conditions, &s.replay, seed); s.clock.unit > 0 {
		s.truth.Coming = s.coming
	}
	s.slow()
	s.look(0)
	return s
}

// Present says which nodes take work in the next round; valid until that round.
func (s *Simulator) Present() []bool { return s.present }

// Truth is the nodes' real state in the round about to run; valid until that round.
func (s *Simulator) Truth() cluster.Truth { return s.truth }

// look sets Present and Truth for the coming round, after one of wait seconds.
func (s *Simulator) look(wait float64) {
	for i := range s.nodes {
		n := &s.nodes[i]
		s.present[i] = n.away == 0
		s.truth.Slowdown[i], s.truth.Noise[i], s.truth.Factor[i], s.truth.Left[i] = n.slowdown, n.noise, max(n.factor, least), 0
		if s.clock.unit > 0 {
			s.clock.courses[i].at(s.now.Seconds() / s.clock.unit)
			s.truth.Pause[i] = max(s.truth.Pause[i]-wait, 0) + s.clock.due(i, s.now) // a node without a share pauses meanwhile
			s.truth.Slowdown[i] = s.coming(i, s.clock.unit)
		}
		if _, busy := s.recorder.Share(i); busy {
			s.truth.Left[i] = (s.queue.at[i] - s.now).Seconds()
		}
	}
}

// Round carries out a plan. Nodes with a share of 0 take no part, except for nodes still at
// older work, which then get their least share. If ctx is done Round returns its error and
// changes nothing.
func (s *Simulator) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: round %d: %w", s.round, err)
	}
	if r := &s.conditions.Replay; r.File != "" && r.Trace == nil {
		return nil, fmt.Errorf("sim: the trace %s was not read; open it before", r.File)
	}
	if err := s.give(&plan); err != nil {
		return nil, err
	}
	s.recorder.Open(s.round, s.now, plan.Collect, s.taking)
	for i := range s.nodes {
		s.start(i)
	}
	s.overtime(&plan.Collect)
	for {
		if _, closed := s.recorder.Closed(); closed {
			break
		}
		limit, limited := s.recorder.Limit()
		if len(s.queue.events) == 0 || limited && s.queue.events[0].at > limit {
			// If no work is under way, the round is closed or has a limit.
			s.recorder.Expire()
			s.giveUp()
			break
		}
		i := s.queue.pop()
		s.now = s.queue.at[i]
		s.arrive(i)
	}
	return s.finish(), nil
}

// give writes the orders of a plan's round.
func (s *Simulator) give(plan *cluster.Plan) error {
	if len(plan.Sizes) != len(s.nodes) {
		return fmt.Errorf("sim: %d sizes for %d nodes", len(plan.Sizes), len(s.nodes))
	}
	some := false
	for i, size := range plan.Sizes {
		node := &s.cluster.Nodes[i]
		_, busy := s.recorder.Share(i)
		s.taking[i] = s.present[i] && (size > 0 || busy)
		if !s.taking[i] {
			continue
		}
		if !node.Takes(size) {
			return fmt.Errorf("sim: round %d: node %s got a share of %d; it takes micro-batches of %d to %d", s.round, node.Name, size, node.LeastStep(), node.Full())
		}
		some = true
		s.orders[i] = plan.Order(node, i)
		s.orders[i].Share = max(size, node.LeastShare())
	}
	if !some && slices.Contains(s.present, true) {
		return fmt.Errorf("sim: round %d: no node got a share", s.round)
	}
	return nil
}

// start gives node i its share of the round that is open, if it is without work.
func (s *Simulator) start(i int) {
	if !s.recorder.Waiting(i) {
		return
	}
	order := s.orders[i]
	s.recorder.HandOut(i, order.Share, s.now)
	n, j := &s.nodes[i], &s.jobs[i]
	if order.Deadline > 0 { // counted from the opening of the round
		order.Deadline = max(order.Deadline-(s.now-s.recorder.Report().Start).Seconds(), 1e-9)
	}
	*j = job{queued: true}
	pause := s.truth.Pause[i]
	s.truth.Pause[i] = 0
	if order.Deadline > 0 {
		order.Deadline = max(order.Deadline-pause, 1e-9)
	}
	took, full := s.work(i, order, j, pause)
	took += pause
	switch {
	case full:
		j.dies, j.oom = true, true
	case n.fails >= 0:
		took, j.dies, j.absence = took*n.fails, true, n.absence
		if n.silent {
			took += heartbeat.Seconds()
		}
	}
	s.queue.push(i, after(s.now, took))
}

// after is t plus seconds, at the end of the clock rather than beyond it.
func after(t time.Duration, seconds float64) time.Duration {
	if left := math.MaxInt64 - t; seconds*1e9 >= float64(left) {
		return math.MaxInt64
	}
	return t + time.Duration(seconds*1e9)
}

// arrive handles the end of node i's work: its gradient, or its failure.
func (s *Simulator) arrive(i int) {
	n, j := &s.nodes[i], &s.jobs[i]
	j.queued = false
	if j.dies {
		s.recorder.Lose(i, s.now, j.oom)
		s.note(i, "fails")
		n.away = 1 + restartRounds // the round under way does not count
		if !j.oom {
			n.away = 1 + j.absence
		}
		return
	}
	share, _ := s.recorder.Share(i)
	verdict := s.recorder.Receive(i, s.now, cluster.Gradient{
		Samples: j.samples, Steps: j.steps,
		Seconds: n.stress.stamped((s.now - share.Start).Seconds() - j.paused),
		Age:     n.stress.stamped((s.now - share.Model).Seconds()),
	})
	s.note(i, verdict.String())
	s.start(i) // a late node now begins this round's work
}

// giveUp restarts the nodes that were silent until the round timed out.
func (s *Simulator) giveUp() {
	s.now, _ = s.recorder.Closed()
	for i := range s.jobs {
		if _, busy := s.recorder.Share(i); s.jobs[i].queued && !busy {
			s.queue.remove(i)
			s.jobs[i].queued = false
			s.nodes[i].away = 1 + restartRounds
			s.note(i, "given up")
		}
	}
}

func (s *Simulator) note(node int, event string) {
	if s.trace != nil {
		s.trace(node, event)
	}
}

// finish moves every node to the next round.
func (s *Simulator) finish() *cluster.Report {
	report := s.recorder.Report()
	s.now = report.Start + report.Wait
	s.gradients(report)
	s.seen += report.Counted
	s.round++
	s.advance()
	s.look(report.Wait.Seconds())
	for i := range s.nodes {
		report.Nodes[i].Pause = s.truth.Pause[i]
	}
	return report
}
