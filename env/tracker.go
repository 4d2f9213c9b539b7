package env

import (
	"math"
	"slices"

	"evenkeel/cluster"
	"evenkeel/cluster/gradient"
)

// Tracker holds the performance parameters of every node and what the rounds showed of
// them. It is the part of the environment that also runs online: a controller
// calls Observe with each report, Rows for the network's input, and Apply with the
// chosen actions. It is a function of the reports and actions it was given.
type Tracker struct {
	cluster *cluster.Cluster `state:"-"`
	nodes   []track
	fleet   fleet
	round   *rounds
	judges  bool // the policy chooses the rule
	noise   gradient.NoiseScale
	scale   float64 // gradient noise scale, in samples; 0: unknown
	spread  float64 // about the expected maximum of one standard normal number per node
	rounds  int
	finish  float64 // seconds, last predicted
	ahead   ahead
	pauses  pauses
	blind   bool  `state:"-"` // it foresees nothing
	wanted  []int `state:"-"` // working memory
}

// track is what is known of one node.
type track struct {
	belief
	filter
	seen
	spell   *spells // apart, because most rounds hardly read it
	outlook outlook
	wanted  bool    // it is made ready for a spell, if that pays
	adopted bool    // the belief is that of an earlier start, and nothing was measured since
	pooled  float64 // deviation, shrunk towards the fleet's (pool)
	logged  float64 `state:"-"` // logNoise of the newest measurement; 0: not kept
}

// fleet is what holds for the round as a whole.
type fleet struct {
	residual, absolute, product, deviation float64
	risen, stayed                          float64 // sudden slowdowns, and those that lasted, with forgetting
	passed                                 float64 // summed excess over the level of those that did not last, with forgetting
	jumps                                  float64 // sudden slowdowns per node and round, moving average
	slow                                   float64 // share of nodes well above their level
	missing                                float64 // share of nodes without a measurement
	excess                                 float64 // wait over the predicted one, - 1
	predicted                              float64
}

// NewTracker starts from the profiles.
func NewTracker(c *cluster.Cluster) *Tracker {
	t := &Tracker{cluster: c, nodes: make([]track, len(c.Nodes)), spread: spread(len(c.Nodes)), round: newRounds(), judges: c.Choices.Quorum != nil, ahead: ahead{off: firstOff, near: clue{prior: nearOff}}}
	all := make([]spells, len(c.Nodes))
	for i, base := range c.Nominal() {
		t.nodes[i].belief = newBelief(base, c.Nodes[i].Profile != nil)
		t.nodes[i].pooled, t.nodes[i].spell = priorDeviation, &all[i]
		all[i] = spells{leader: -1, near: clue{prior: nearOff}}
	}
	return t
}

// spread is the normal quantile of 1-1/n: about one of n nodes is further out.
func spread(n int) float64 {
	return math.Sqrt2 * math.Erfinv(1-2/float64(max(n, 3)))
}

// Blind makes the tracker foresee nothing.
func (t *Tracker) Blind() { t.blind = true }

// Spread is about the expected maximum of the nodes' noise, in deviations.
func (t *Tracker) Spread() float64 { return t.spread }

// marginUnit is the unit of safety margins, in deviations: the fleet's spread, less if a round has several spikes, which hide the
// noise of the other nodes, and none if rounds end at a deadline, which do not wait for a late node.
func (t *Tracker) marginUnit() float64 {
	switch {
	case t.cluster.Collect.Timed():
		return 0
	case t.round.rule.Quorum < 1:
		return t.spread
	}
	return t.spread * Hidden(t.fleet.jumps*float64(len(t.nodes)))
}

// Hidden is the share of the best safety margin that is left if a round has so many spikes
// on average.
func Hidden(spikes float64) float64 { return 1 / (1 + 0.07*spikes*spikes) }

// Noise is node i's deviation over the prior's; at least 1.
func (t *Tracker) Noise(i int) float64 { return max(1, t.nodes[i].pooled/priorDeviation) }

// Late reports whether node i had not delivered by the end of the last round.
func (t *Tracker) Late(i int) bool { return t.nodes[i].late }

// Observe processes a round's report: the gradients received, the total wait, the times.
func (t *Tracker) Observe(report *cluster.Report) { t.observe(report, t.judges, nil) }

// Watch is Observe for a tracker that would have handed out other shares: rules are judged as if nodes had worked on
// these shares; nil: rules are not judged.
func (t *Tracker) Watch(report *cluster.Report, shares []int) {
	t.observe(report, t.judges && shares != nil, shares)
}

func (t *Tracker) observe(report *cluster.Report, judge bool, shares []int) {
	report = t.unpaused(report)
	t.noise.Add(report)
	if scale, known := t.noise.Samples(); known {
		t.scale = scale
	}
	t.round.pace(t, report)
	if judge {
		t.round.see(t, report, shares)
	}
	wait := max(report.Wait.Seconds(), 1e-9)
	f := fleet{jumps: t.fleet.jumps, risen: t.fleet.risen, stayed: t.fleet.stayed, passed: t.fleet.passed}
	if t.fleet.predicted > 0 {
		f.excess = wait/t.fleet.predicted - 1
	}
	measured, taking, jumped, risen, stayed, passed := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range t.nodes {
		n, r := &t.nodes[i], &report.Nodes[i]
		n.see(r, wait)
		if r.Status != cluster.Absent {
			taking++
		}
		if !r.Measured() {
			continue
		}
		once, before := n.rose == 1, n.newest[0]
		if n.measure(&t.cluster.Nodes[i], r, t.cluster.Collect.Timed()) {
			jumped++
			n.rose++
		} else {
			n.rose = 0
		}
		if once {
			risen++
			if n.newest[0] > (n.level+before)/2 {
				stayed++
			} else {
				passed += max(before/n.level-1, 0)
			}
		}
		measured++
		f.add(n)
	}
	f.average(measured)
	f.learn(risen, stayed, passed)
	t.pool()
	if !t.blind && t.Waits() {
		t.foresee(report, wait)
	}
	// The first rounds show how wrong the profiles are, not how often nodes jump.
	if measured > 0 && t.rounds >= 3 {
		f.jumps += max(0.02, 1/float64(t.rounds)) * (jumped/measured - f.jumps)
	}
	if taking > 0 {
		f.missing = 1 - measured/taking
	}
	t.fleet = f
	t.rounds++
}

// learn counts how many nodes were suddenly slower a round ago, how many of these still are, and the summed excess of the others.
func (f *fleet) learn(risen, stayed, passed float64) {
	keep := math.Pow(riseKeep, risen)
	f.risen, f.stayed, f.passed = keep*f.risen+risen, keep*f.stayed+stayed, keep*f.passed+passed
}

// odds are the odds that a sudden slowdown lasts.
func (f *fleet) odds() float64 { return (f.stayed + 0.5) / (f.risen - f.stayed + 0.5) }

// add adds a node that was measured to the sums.
func (f *fleet) add(n *track) {
	d := n.deviation()
	z := clip(n.residual/d, 4)
	f.residual += z
	f.absolute += math.Abs(z)
	f.product += clip(n.product, 4)
	n.logged = math.Log(d / priorDeviation)
	f.deviation += n.logged
	if n.newest[0] > 1.2*n.level {
		f.slow++
	}
}

// average turns the sums over so many nodes into means.
func (f *fleet) average(nodes float64) {
	if nodes == 0 {
		return
	}
	f.residual /= nodes
	f.absolute /= nodes
	f.product /= nodes
	f.deviation /= nodes
	f.slow /= nodes
}

// measure processes a measurement and reports whether the node is suddenly slower. Rounds that end at a deadline (timed) say
// nothing about the line's form: their time is given and the size follows from the pace, so a line through them is all overhead.
func (n *track) measure(node *cluster.Node, r *cluster.NodeReport, timed bool) bool {
	size := node.Cost(r.Size)
	if n.adopted && n.surprising(node.SlownessOf(n.base, size, r.Seconds)/n.slowdown-1, n.form.off(size)) {
		n.forget(node)
	}
	n.adopted = false
	if n.unknown && n.count == 0 {
		steps := 1.0
		if timed {
			steps = float64(max(r.Steps, 1))
		}
		n.begin(node, size, r.Seconds, steps)
	}
	m := node.SlownessOf(n.base, size, r.Seconds)
	off := m/n.slowdown - 1
	n.doubtful = n.form.off(size)
	jump := n.count > 0 && n.surprising(off, n.doubtful)
	if n.form.doubt > 0 && n.count > 0 {
		if !jump && !timed {
			n.learn(node, size, off)
			m = node.SlownessOf(n.base, size, r.Seconds)
		}
		n.newest[0] = node.SlownessOf(n.base, n.work, n.seconds) // of the measurement before, by the line as it is now
	}
	residual := m/n.slowdown - 1
	if n.count > 0 {
		n.learnNoise(math.Abs(m-n.newest[0])/n.slowdown, n.count)
	}
	n.innovate(residual, n.deviation(), jump)
	n.add(m, r)
	n.work = size
	n.remember(m)
	return jump && residual > 0
}

// forget begins anew with a node whose newest measurement is to be taken in.
func (n *track) forget(node *cluster.Node) {
	s := n.seen
	s.count = 0
	*n.spell = spells{leader: -1, near: clue{prior: nearOff}}
	*n = track{belief: newBelief(n.base, node.Profile != nil), seen: s, spell: n.spell, pooled: priorDeviation}
}

// NoiseScale is the gradient noise scale in samples, estimated from the gradients' norms; 0 if
// there is no estimate.
func (t *Tracker) NoiseScale() float64 { return t.scale }

// SureScale is NoiseScale if it is known well enough to set a learning rate by; otherwise 0.
func (t *Tracker) SureScale() float64 {
	if !t.noise.Sure() {
		return 0
	}
	return t.scale
}

// Apply updates every node's performance parameters by its action: the method's
// output. perf gets, for each node, the parameters to allocate by. A node that was not
// measured keeps its belief; the action then sets its margin and, if it is later than
// predicted, a guess of the time left.
func (t *Tracker) Apply(actions []int, perf []cluster.Performance) {
	unit := t.marginUnit()
	for i := range t.nodes {
		perf[i] = t.nodes[i].apply(&Actions[actions[i]], &t.cluster.Nodes[i], unit)
	}
}

// apply updates a node by an action, given the unit of margins, and returns the parameters
// to allocate by.
func (n *track) apply(a *Action, node *cluster.Node, unit float64) cluster.Performance {
	n.gain, n.margin = 0, a.Margin*unit
	if n.fresh {
		n.update(a, &n.belief, &n.seen)
	}
	n.await(a, &n.seen, node)
	return n.performance(node)
}

// Occupy writes the parameters to allocate by into dst: perf, with the time until a node is free from its older work, and that of
// a pause it announced, added to its overhead.
func (t *Tracker) Occupy(perf, dst []cluster.Performance) {
	for i := range t.nodes {
		dst[i] = perf[i]
		dst[i].Overhead += t.nodes[i].left
	}
	for i := range t.pauses.nodes {
		dst[i].Overhead += t.pauses.room(i, t.finish)
	}
}

// Predict sets the finish time, in seconds, that the coming allocation is expected to have.
func (t *Tracker) Predict(finish float64) { t.fleet.predicted, t.finish = finish, finish }

func clip(x, limit float64) float64 { return min(max(x, -limit), limit) }

const mostAdopted = 10

// Adopt takes over what o knows about nodes that are in both: node i of t is node from[i] of o; below 0: o does not have it.
// What is known counts as at most mostAdopted measurements, and is forgotten if the first one does not fit it. Unfinished work is forgotten. A node without a profile or a measurement is assumed to be as fast as the others on average.
// Call it before the first round.
func (t *Tracker) Adopt(o *Tracker, from []int) {
	sum, count := 0.0, 0.0
	for i, k := range from {
		if k < 0 {
			continue
		}
		n := o.nodes[k]
		n.left, n.busy, n.busySize, n.fresh, n.late = 0, 0, 0, false, false
		n.count, n.levels = min(n.count, mostAdopted), min(n.levels, mostAdopted)
		s := *n.spell
		s.leader, s.near = -1, clue{prior: nearOff}
		n.spell, n.outlook, n.wanted, n.adopted = &s, outlook{}, false, true
		t.nodes[i] = n
		if n.count > 0 {
			per := n.base.PerSample
			if n.form.doubt > 0 { // what looks like overhead may grow with the size
				per += (n.base.Overhead - t.cluster.Nodes[i].Network) / n.form.at
			}
			sum += per * n.slowdown
			count++
		}
	}
	for i := range t.nodes {
		if n := &t.nodes[i]; count > 0 && n.unknown && n.count == 0 {
			n.base.PerSample = sum / count
		}
	}
	t.fleet = fleet{jumps: o.fleet.jumps, risen: o.fleet.risen, stayed: o.fleet.stayed, passed: o.fleet.passed}
	t.rounds, t.scale, t.noise, t.ahead = o.rounds, o.scale, o.noise, o.ahead
}

// With returns t and nodes of o, to be adopted from.
func (t *Tracker) With(o *Tracker, which []int) *Tracker {
	both := *t
	both.nodes = slices.Clip(t.nodes)
	for _, k := range which {
		both.nodes = append(both.nodes, o.nodes[k])
	}
	return &both
}

// Performance writes every node's parameters, as last believed and with the last margin, into perf.
func (t *Tracker) Performance(perf []cluster.Performance) {
	for i := range t.nodes {
		perf[i] = t.nodes[i].performance(&t.cluster.Nodes[i])
	}
}

// Newest is the slowdown that node i's newest measurement showed.
func (t *Tracker) Newest(i int) float64 { return t.nodes[i].newest[0] }

// At returns node i's performance parameters at a slowdown.
func (t *Tracker) At(i int, slowdown float64) cluster.Performance {
	return t.cluster.Nodes[i].Slowed(t.nodes[i].base, slowdown)
}

// performance is what to allocate by.
func (n *track) performance(node *cluster.Node) cluster.Performance {
	return node.Slowed(n.base, n.slowdown*(1+n.lag(n.deviation()))*(1+n.margin*n.pooled*math.Sqrt(1+n.variance)))
}
