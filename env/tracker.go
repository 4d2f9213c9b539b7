package env

import (
	"math"

	"github.com/evenkeel/evenkeel/cluster"
)

// Tracker keeps the performance parameters of every node and what the rounds said
// about them. It is the part of the environment that also runs online: a controller
// calls Observe with each report, Rows for the network's input, and Apply with the
// chosen actions. It is a function of the reports and actions it was given.
type Tracker struct {
	cluster *cluster.Cluster
	nodes   []track
	fleet   fleet
	round   *rounds
	scale   float64 // gradient noise scale, in samples
	spread  float64 // deviations by which the largest of N normal numbers stands out
	rounds  int
}

// track is one node's belief and history.
type track struct {
	base     cluster.Performance   // at slowdown 1
	fit      *cluster.LeastSquares // where no profile is known
	slowdown float64               // the belief
	margin   float64               // room kept at present, in deviations
	gain     float64               // last chosen
	deviance float64               // mean absolute change between measurements, relative
	variance float64               // of the belief, in units of one measurement's; the Kalman filter's P/R without drift
	level    float64               // long-run slowdown outside spells of slowness
	levels   float64               // measurements in level
	strange  int                   // measurements in a row that do not fit level
	newest   [4]float64            // measured slowdowns, newest first
	count    float64               // measurements
	average  float64               // moving average of the residuals
	product  float64               // moving average of residual times the one before, in variances
	residual float64               // of the newest measurement, relative to the belief it met
	streak   int                   // residuals in a row of one sign, signed
	calm     int                   // rounds since the last residual beyond four deviations
	size     int                   // that the newest measurement belongs to
	fresh    bool                  // measured in the last round
	seconds  float64               // the newest measurement, of size samples
	late     bool                  // known only to exceed a bound in the last round
	busy     float64               // seconds at the work of busySize samples that is still under way
	busySize int                   // 0: none
	left     float64               // seconds until that work is expected to be done
	share    float64               // arrival over the round's wait
	age      float64               // of the gradient over the round's wait
	norm     float64
	agree    float64
}

// fleet is what holds for the round as a whole.
type fleet struct {
	residual, absolute, product, deviation float64
	jumps                                  float64 // sudden slowdowns per node and round, moving average
	slow                                   float64 // share of nodes well above their level
	missing                                float64 // share of nodes without a measurement
	excess                                 float64 // wait over what was predicted, - 1
	predicted                              float64
}

const (
	priorDeviation = 0.03 // median step noise of variability/cnn_step_ms.csv
	priorWeight    = 3    // measurements that the prior counts as
	devianceRate   = 0.01 // a node's noise changes slowly
	jumpAt         = 4.0  // deviations
	quiet          = 0.25 // product of neighbouring residuals, in variances, below which nothing drifts
	enough         = 8    // measurements after which a line that was fitted may judge new ones
	normalAbs      = 0.7979 * math.Sqrt2
)

// NewTracker starts from the profiles.
func NewTracker(c *cluster.Cluster) *Tracker {
	t := &Tracker{cluster: c, nodes: make([]track, len(c.Nodes)), spread: spread(len(c.Nodes)), round: newRounds()}
	for i, base := range c.Nominal() {
		t.nodes[i] = track{base: base, slowdown: 1, level: 1, variance: 6, deviance: priorDeviation * normalAbs}
		if c.Nodes[i].Profile == nil {
			t.nodes[i].fit = cluster.NewLeastSquares(0.98)
		}
	}
	return t
}

// spread is the normal quantile of 1-1/n: about one of n nodes is further out.
func spread(n int) float64 {
	return math.Sqrt2 * math.Erfinv(1-2/float64(max(n, 3)))
}

// room is the unit of margins, in deviations: the fleet's spread, and less where a round
// holds several spikes anyway, behind which everybody's noise hides.
func (t *Tracker) room() float64 {
	if t.round.rule.Quorum < 1 {
		return t.spread
	}
	return t.spread * hidden(t.fleet.jumps*float64(len(t.nodes)))
}

// deviation is the estimated relative sd of one measurement. Differences of
// neighbours cancel drift, and absolute values dampen spikes.
func (n *track) deviation() float64 { return max(n.deviance/normalAbs, 5e-4) }

// Noise is node i's noise, as measured, over the usual one; at least 1.
func (t *Tracker) Noise(i int) float64 { return max(1, t.nodes[i].deviation()/priorDeviation) }

// Observe takes in a round: the gradients received, the total wait, the times.
func (t *Tracker) Observe(report *cluster.Report) {
	t.noiseScale(report)
	if t.cluster.Choices.Quorum != nil {
		t.round.see(t, report)
	}
	wait := max(report.Wait.Seconds(), 1e-9)
	f := fleet{jumps: t.fleet.jumps}
	if t.fleet.predicted > 0 {
		f.excess = wait/t.fleet.predicted - 1
	}
	seen, taking, jumped := 0.0, 0.0, 0.0
	for i := range t.nodes {
		n, r := &t.nodes[i], &report.Nodes[i]
		n.fresh, n.late = false, false
		n.busy, n.busySize = r.Busy, r.BusySize
		n.share, n.age, n.norm, n.agree = min(r.Seconds/wait, 2), min(r.Age/wait, 4), r.Norm, r.Agree
		if r.Status != cluster.Absent {
			taking++
		}
		switch {
		case r.Measured():
			if n.measure(&t.cluster.Nodes[i], r) {
				jumped++
			}
			d := n.deviation()
			seen++
			z := clip(n.residual/d, 4)
			f.residual += z
			f.absolute += math.Abs(z)
			f.product += clip(n.product, 4)
			f.deviation += math.Log(d / priorDeviation)
			if n.newest[0] > 1.2*n.level {
				f.slow++
			}
		case r.Status == cluster.Late && r.Size > 0:
			n.late, n.size = true, r.Size
		}
	}
	if seen > 0 {
		f.residual /= seen
		f.absolute /= seen
		f.product /= seen
		f.deviation /= seen
		f.slow /= seen
		// The first rounds tell how wrong the profiles are, not how often nodes jump.
		if t.rounds >= 3 {
			f.jumps += max(0.02, 1/float64(t.rounds)) * (jumped/seen - f.jumps)
		}
	}
	if taking > 0 {
		f.missing = 1 - seen/taking
	}
	t.fleet = f
	t.rounds++
}

// noiseScale follows the gradient noise scale S by the norms of the gradients: of b
// samples it is |G|^2 (1 + S/b) in the mean (McCandlish et al. 2018), here over that of
// the aggregate.
func (t *Tracker) noiseScale(report *cluster.Report) {
	sum, n := 0.0, 0.0
	for i := range report.Nodes {
		r := &report.Nodes[i]
		square := r.Norm * r.Norm
		if r.Status != cluster.In || r.Size == 0 || square <= 1 {
			continue
		}
		if d := 1/float64(r.Size) - square/float64(max(report.Accepted, r.Size)); d > 0 {
			sum += (square - 1) / d
			n++
		}
	}
	if n > 0 {
		t.scale += max(roundRate, 1/float64(t.rounds+1)) * (sum/n - t.scale)
	}
}

// NoiseScale is the gradient noise scale in samples, as the gradients' norms show it.
func (t *Tracker) NoiseScale() float64 { return t.scale }

// measure takes in a whole measurement and reports whether the node is suddenly slower.
func (n *track) measure(node *cluster.Node, r *cluster.NodeReport) bool {
	if n.fit != nil && n.count == 0 {
		// The nameplate only bridged the time until now.
		n.fit.Add(float64(r.Size), r.Seconds)
		n.base, _ = n.fit.Performance(node.Network)
		n.slowdown = 1
	}
	m := node.Slowness(n.base, r)
	before := n.residual
	n.residual = m/n.slowdown - 1
	n.size, n.seconds, n.fresh = r.Size, r.Seconds, true
	if n.count > 0 {
		change := min(math.Abs(m-n.newest[0])/n.slowdown, 3*n.deviance*(1+5/n.count))
		n.deviance += max(devianceRate, 1/(n.count+priorWeight)) * (change - n.deviance)
	}
	d := n.deviation()
	jump := n.count > 0 && math.Abs(n.residual) > jumpAt*d*math.Sqrt(1+n.variance)
	n.calm++
	if jump {
		n.calm = 0
	}
	z := clip(n.residual/d, 4)
	n.average += 0.1 * (z - n.average)
	n.product += 0.05 * (z*clip(before/d, 4) - n.product)
	switch {
	case n.residual > 0:
		n.streak = max(n.streak, 0) + 1
	case n.residual < 0:
		n.streak = min(n.streak, 0) - 1
	}
	copy(n.newest[1:], n.newest[:3])
	n.newest[0] = m
	if n.count == 0 {
		n.newest = [4]float64{m, m, m, m}
	}
	n.count++
	n.remember(m, d)
	return jump && n.residual > 0
}

// learn lets the line of a node whose profile is unknown follow a measurement at its
// long-run level. A spell of slowness must not bend the line; it moves the slowdown.
func (n *track) learn(node *cluster.Node) {
	n.fit.Add(float64(n.size), node.Network+max(n.seconds-node.Network, 0.01*n.seconds)/n.level)
	n.base, _ = n.fit.Performance(node.Network)
	n.base.Overhead = max(n.base.Overhead, node.Network)
	n.slowdown, n.variance = n.level, max(0.01, 1/n.count)
}

// remember keeps the long-run level: spells of slowness leave it alone, unless they
// last so long that they have become the level.
func (n *track) remember(m, d float64) {
	const patience = 60 // rounds
	if n.levels == 0 {
		n.level, n.levels = m, 1
		return
	}
	if n.fit != nil && n.count <= enough {
		return // the line itself is still moving
	}
	if math.Abs(m/n.level-1) > jumpAt*d*math.Sqrt(1+1/n.levels) {
		if n.strange++; n.strange > min(patience, 4*int(n.levels)) {
			n.level, n.levels, n.strange = n.slowdown, 1, 0
		}
		return
	}
	n.strange = 0
	n.levels++
	n.level += max(0.02, 1/n.levels) * (m - n.level)
}

// Apply updates every node's performance parameters by its action: the method's
// output. perf gets, for each node, the parameters to allocate by. A node that was not
// measured keeps its belief; only its margin is chosen, and what to believe of one that
// is later than predicted.
func (t *Tracker) Apply(actions []int, perf []cluster.Performance) {
	room := t.room()
	for i := range t.nodes {
		n, a, node := &t.nodes[i], &Actions[actions[i]], &t.cluster.Nodes[i]
		n.gain, n.margin = 0, a.Margin*room
		if n.fresh {
			if n.fit != nil && (n.strange == 0 || n.count <= enough) {
				n.learn(node)
			} else {
				n.update(a)
			}
		}
		n.wait(a, node)
		perf[i] = node.Slowed(n.base, n.slowdown*(1+n.margin*n.deviation()*math.Sqrt(1+n.variance)))
	}
}

// guesses are what to believe of work that is overdue, by update: how much longer it will
// take, and whether the node is slower (or was it noise, or a spike?).
var guesses = [...]struct {
	left   float64 // over the time so far
	slower bool
}{{0.04, false}, {0.12, false}, {0.25, false}, {0.1, true}, {0.4, true}, {1.2, true}, {0.12, false}}

// wait judges the work that is still under way: when it will be done, and what it says of
// the node where it is overdue.
func (n *track) wait(a *Action, node *cluster.Node) {
	n.left = 0
	if n.busySize == 0 {
		return
	}
	due := node.Finish(node.Slowed(n.base, n.slowdown), n.busySize)
	switch {
	case n.busy < due:
		n.left = due - n.busy
	case !n.late: // it has just been measured; its action was about that
		n.left = guesses[0].left * n.busy
	default:
		g := guesses[a.guess]
		n.left = g.left * n.busy
		if g.slower || n.count == 0 { // nothing but the nameplate speaks against it
			n.slowdown = node.Slowness(n.base, &cluster.NodeReport{Size: n.busySize, Seconds: n.busy + n.left})
			n.variance = max(n.variance, 1)
		} else if a.Trust == Return {
			n.slowdown = n.level
		}
	}
}

// Occupy writes the parameters to allocate by into dst: perf, with the time until a node
// is free from its older work added to its overhead.
func (t *Tracker) Occupy(perf, dst []cluster.Performance) {
	for i := range t.nodes {
		dst[i] = perf[i]
		dst[i].Overhead += t.nodes[i].left
	}
}

// update moves the belief. The variance is that of a filter which made the same move.
func (n *track) update(a *Action) {
	switch a.Trust {
	case Filter:
		before := n.variance + a.Drift
		n.gain = before / (before + 1)
		n.variance = n.gain
	case Jump:
		n.gain, n.variance = 1, 1
	case Return:
		n.slowdown, n.variance = n.level, max(0.01, 1/max(n.levels, 1))
	}
	n.slowdown += n.gain * (n.believable() - n.slowdown)
}

// believable is the newest measurement, but for one that is faster than the node is known
// to be: where much would be given on it, the slower of the last two counts. Were it
// noise, everybody would wait.
func (n *track) believable() float64 {
	const much = 0.25 // gain
	m := n.newest[0]
	if n.gain > much && m < n.level {
		m = min(max(m, n.newest[1]), n.level)
	}
	return m
}

// Predict tells the tracker the finish time in seconds of the allocation that follows.
func (t *Tracker) Predict(finish float64) { t.fleet.predicted = finish }

func clip(x, limit float64) float64 { return min(max(x, -limit), limit) }
