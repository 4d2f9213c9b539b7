package env

import (
	"math"

	"evenkeel/cluster"
	"evenkeel/internal/stats"
)

// ahead is what the tracker knows of the spells of all nodes.
type ahead struct {
	now            float64      // end of the newest round, in seconds of the reports' clock
	unit           float64      // seconds of a round, moving average
	ended          float64      // spells
	excess, length float64      // of a spell, moving averages
	off            float64      // mean relative deviation of intervals
	near           clue         // of nodes without a leader of their own
	longer         float64      // round with room for the spells over one without
	ready          bool         // there is room
	profits        float64      // rounds in profit
	profit         stats.Moving // share of a round that being ready saves
	omen           clue         // its odds are those of a spell after two rounds in which a node was a little slower
}

const (
	firstOff      = 0.15 // of a lag: deviation as long as none is known
	nearOff       = 0.3  // the same of a lag behind a leader
	nearest       = 3    // places within which a leader is looked for
	farthest      = 1.5  // lengths of a spell that a leader may be ahead
	likeSpell     = 0.5  // of the usual excess: least of a round that warns of a spell
	leastTogether = 3    // nodes that begin a spell in the same round for one of many
	shareTogether = 0.2  // the same as a share of the nodes
	leastMember   = 0.25 // of the spells of many together, from which a node's are theirs
	leastChance   = 0.05 // of a spell, from which a node is made ready for it
	leastStake    = 2.0  // chance of a spell times what the others would wait, from which a node is made ready for it
	profitRate    = 0.03
	leastProfits  = 3   // rounds in which readiness was accounted for before it is used
	sureProfit    = 0.5 // standard errors
	shortSpell    = 2   // rounds below which a spell delays a node, whatever its share
)

// foresee takes in which nodes were slow in a round of wait seconds.
func (t *Tracker) foresee(report *cluster.Report, wait float64) {
	h := &t.ahead
	t.account(report)
	start := report.Start.Seconds()
	if start < h.now || start > h.now+100*h.unit && h.now > 0 { // a clock jumped, or there is none
		start = h.now
	}
	h.now = start + wait
	h.unit += max(0.05, 1/float64(t.rounds+1)) * (wait - h.unit)
	begun, off, intervals, excess, length, ended, signs, came := 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range t.nodes {
		n := &t.nodes[i]
		s := n.spell
		if s.began = false; !n.fresh || n.levels < 2 {
			continue
		}
		omen := s.omen
		begins, ends := s.see(n.newest[0]/n.level, n.deviation(), start, report.Nodes[i].Seconds, h.unit)
		if s.began = s.rounds == 2 || ends && s.rounds == 1; s.began { // a spike, perhaps
			begun++
		}
		if begins {
			if o, known := t.begins(i); known {
				intervals++
				off += o
			}
		}
		if ends && s.end() {
			ended++
			excess += s.excess
			length += s.length
		}
		if omen > 1 {
			signs++
			came += flag(s.rounds > 0)
		}
	}
	h.omen.judge(came, signs-came, fleetKeep)
	if intervals > 0 {
		h.off += (1 - math.Pow(0.8, intervals)) * (off/intervals - h.off)
	}
	if ended > 0 {
		h.ended += ended
		rate := max(1-math.Pow(0.9, ended), ended/h.ended)
		h.excess += rate * (excess/ended - h.excess)
		h.length += rate * (length/ended - h.length)
	}
	together := t.many(begun)
	for i := range t.nodes {
		s := t.nodes[i].spell
		if together || s.began { // alone: many may have begun in one round by chance
			s.member += 0.3 * (flag(together && s.began) - s.member)
		}
		if !together && t.nodes[i].fresh && (s.rounds == 1 || s.rounds == 2) && s.member <= leastMember {
			t.warn(i)
		}
	}
	for i := range t.nodes {
		if n := &t.nodes[i]; n.spell.quiet() {
			n.outlook = outlook{}
		} else {
			t.expire(i)
			n.outlook = t.look(i)
		}
	}
}

// begins learns from a spell of node i that has begun. It returns how far off the mean the interval was, relative, if it was none of strays.
func (t *Tracker) begins(i int) (off float64, known bool) {
	s, h := t.nodes[i].spell, &t.ahead
	before := s.own
	s.own.learn(s.since, h.unit)
	if known = before.count > 0 && s.own.count > before.count; known {
		off = math.Abs(s.since-before.from-before.lag) / before.lag
	}
	s.count++
	s.begun = s.since
	t.follows(i)
	return off, known
}

// group returns the first of the nodes near node i, and the end of them.
func (t *Tracker) group(i int) (from, to int) {
	return max(i-nearest, 0), min(i+nearest+1, len(t.nodes))
}

// leader is the node whose spells come before those of node i: the one that was found, or the node before it in the rack; -1: none.
func (t *Tracker) leader(i int) int {
	if l := t.nodes[i].spell.leader; l >= 0 || i == 0 || !t.cluster.Nodes[i-1].Near(&t.cluster.Nodes[i]) {
		return l
	}
	return i - 1
}

// following is the clue of node i from its leader's spells: its own, or that of all nodes.
func (t *Tracker) following(i int) clue {
	c := t.nodes[i].spell.near
	if c.count == 0 {
		c.lag, c.off, c.count, c.prior, c.hits, c.misses = t.ahead.near.lag, t.ahead.near.off, t.ahead.near.count, nearOff, t.ahead.near.hits, t.ahead.near.misses
	}
	return c
}

// warn tells those whose leader is node i that a spell seems to have begun there.
func (t *Tracker) warn(i int) {
	s := t.nodes[i].spell
	if excess, _ := t.remembered(s); s.most-1 < likeSpell*excess {
		return
	}
	for k, end := t.group(i); k < end; k++ {
		if k != i && t.leader(k) == i && t.nodes[k].spell.rounds == 0 {
			t.nodes[k].spell.near.from = s.since
		}
	}
}

// follows looks for the node whose spell came before that of node i.
func (t *Tracker) follows(i int) {
	s, h := t.nodes[i].spell, &t.ahead
	if s.near.from > 0 {
		c := t.following(i)
		t.judge(i, c.count > 0 && math.Abs(c.in(s.since)) < reach*c.spread(h.unit))
	}
	_, length := t.remembered(s)
	best, at := -1, s.since-farthest*length-2*h.unit
	for k, end := t.group(i); k < end; k++ {
		o := t.nodes[k].spell
		if k == i || !t.cluster.Nodes[i].Near(&t.cluster.Nodes[k]) || o.count == 0 || o.begun <= at || o.begun >= s.since {
			continue
		}
		if best, at = k, o.begun; k == s.leader {
			break
		}
	}
	if best < 0 {
		return
	}
	if s.leader < 0 || best != s.leader && s.near.odds() < 0.5 {
		s.leader, s.near = best, clue{prior: nearOff}
	}
	if best == s.leader {
		s.near.average(s.since-at, 2*s.near.spread(h.unit))
		h.near.average(s.since-at, 2*h.near.spread(h.unit))
	}
}

// judge notes whether a spell of node i came as its leader's foretold.
func (t *Tracker) judge(i int, hit bool) {
	s := t.nodes[i].spell
	s.near.judge(flag(hit), flag(!hit), clueKeep)
	t.ahead.near.judge(flag(hit), flag(!hit), fleetKeep)
	s.near.from = 0
}

// many says whether so many nodes that a spell begins at in the same round have one cause, such as a save.
func (t *Tracker) many(begun float64) bool {
	return begun >= max(leastTogether, shareTogether*float64(len(t.nodes)))
}

// roll goes on to the next interval where a spell was not seen.
func (t *Tracker) roll(c *clue) {
	if c.overdue(t.ahead.now, t.ahead.unit) {
		c.misses += unseen
		c.from += c.lag
	}
}

// expire gives up node i's clues whose time is over.
func (t *Tracker) expire(i int) {
	s := t.nodes[i].spell
	s.own.prior = t.ahead.off
	t.roll(&s.own)
	if s.near.from > 0 {
		if c := t.following(i); c.overdue(t.ahead.now, t.ahead.unit) {
			t.judge(i, false)
		}
	}
}

// quiet says whether nothing can be foreseen of the node.
func (s *spells) quiet() bool {
	return s.count == 0 && s.member == 0 && s.omen < 2 && s.near.from == 0
}

// outlook is what is foreseen for a node in the coming round.
type outlook struct {
	chance float64 // that a spell begins
	excess float64 // slowdown in a spell over the level, - 1
	rounds float64 // of a spell; 0: there was none yet
}

func (t *Tracker) look(i int) (o outlook) {
	s, h := t.nodes[i].spell, &t.ahead
	if h.ended == 0 {
		return o
	}
	excess, length := t.remembered(s)
	o.excess, o.rounds = excess, length/h.unit
	if s.rounds > 0 || s.member > leastMember { // nodes that are slow together hold up each other, ready or not
		return o
	}
	c := t.following(i)
	not := (1 - c.chance(h.now, h.unit)) * (1 - s.own.chance(h.now, h.unit))
	if s.omen > 1 && h.omen.hits > proven {
		not *= 1 - h.omen.odds()
	}
	o.chance = 1 - not
	return o
}

// remembered are the excess and the length of a node's spells, or of all nodes' if it has had none.
func (t *Tracker) remembered(s *spells) (excess, length float64) {
	if s.excess > 0 {
		return s.excess, s.length
	}
	return t.ahead.excess, t.ahead.length
}

// Prepare leaves room for a spell in the parameters of nodes for which one is likelier than what it costs to be ready for it, if
// being ready has paid so far. It does nothing where rounds do not wait for all nodes.
func (t *Tracker) Prepare(perfs ...[]cluster.Performance) {
	h, waits := &t.ahead, t.Waits()
	h.ready = waits && h.pays()
	wanted := t.wanted[:0]
	for i := range t.nodes {
		n := &t.nodes[i]
		n.wanted = false
		if o := &n.outlook; waits && o.chance > leastChance && t.stake(i) > leastStake {
			wanted = append(wanted, i)
		}
	}
	t.wanted = wanted
	if h.longer = 1; len(wanted) == 0 {
		return
	}
	without, less := 0.0, 0.0 // what the nodes do in a second, and what a part of them does not in a spell
	for i := range perfs[0] {
		without += 1 / perfs[0][i].PerSample
	}
	for _, i := range wanted {
		n := &t.nodes[i]
		if n.wanted = t.stake(i) > leastStake*float64(len(wanted)); !n.wanted { // nodes that are slow together hold the others up only once
			continue
		}
		less += (1 - 1/t.slower(i)) / perfs[0][i].PerSample
		for _, perf := range perfs {
			if h.ready {
				perf[i] = t.expect(i, perf[i])
			}
		}
	}
	h.longer = without / (without - less)
}

// Unready says that the shares of the coming round will not leave the room that Prepare made.
func (t *Tracker) Unready() { t.ahead.ready = false }

// stake is the chance of a spell times what the others would wait.
func (t *Tracker) stake(i int) float64 {
	o := &t.nodes[i].outlook
	return o.chance * (1 + o.excess) * float64(len(t.nodes))
}

// slower is how much slower node i is in a round with a spell.
func (t *Tracker) slower(i int) float64 {
	o := &t.nodes[i].outlook
	if o.rounds < shortSpell {
		return 1 / max(1-o.rounds*o.excess/(1+o.excess), 0.1)
	}
	return 1 + o.excess
}

// expect returns performance parameters of node i, perf without a spell, for a round with one. A short spell delays the node, whatever
// its share.
func (t *Tracker) expect(i int, perf cluster.Performance) cluster.Performance {
	o := &t.nodes[i].outlook
	if o.rounds < shortSpell {
		perf.Overhead += o.rounds * t.ahead.unit * o.excess / (1 + o.excess)
		return perf
	}
	return t.cluster.Nodes[i].Slowed(perf, 1+o.excess)
}

// pays says whether being ready for spells has saved time, by more than a standard error.
func (h *ahead) pays() bool {
	rate := max(profitRate, 1/max(h.profits, 1))
	return h.profits >= leastProfits && h.profit.Mean > sureProfit*h.profit.Error(rate)
}

// account compares the newest round with one in which the nodes wanted would not have been ready, or would have been.
func (t *Tracker) account(report *cluster.Report) {
	h, wanted := &t.ahead, false
	if h.longer <= 1 {
		return
	}
	was, other := 0.0, 0.0
	for i := range t.nodes {
		n, r := &t.nodes[i], &report.Nodes[i]
		if !n.fresh {
			continue
		}
		part, delay := h.longer, 0.0 // the share in the other round over that in this one; what does not depend on it
		if n.wanted {
			wanted = true
			part /= t.slower(i)
			if n.outlook.rounds < shortSpell {
				delay = max(r.Seconds*(1-n.level/n.newest[0]), 0)
			}
		}
		if h.ready {
			part = 1 / part
		}
		was, other = max(was, r.Seconds), max(other, delay+(r.Seconds-delay)*part)
	}
	if !wanted || was == 0 {
		return
	}
	saved := 1 - other/was
	if h.ready {
		saved = other/was - 1
	}
	h.profits++
	h.profit.Add(clip(saved, 2), max(profitRate, 1/h.profits))
}

// Recall changes the model's actions: nodes that were slow together, in a spell as short as those before, return to their level,
// because the spell is over.
func (t *Tracker) Recall(actions []int) {
	if !t.Waits() {
		return
	}
	over := 0.0
	for i := range t.nodes {
		over += flag(t.over(i))
	}
	if !t.many(over) {
		return
	}
	for i := range actions {
		if t.over(i) {
			actions[i] = modelReturn + modelRoom
		}
	}
}

// over says whether a spell of node i that began in the newest round, and that others have had with it, has ended in it.
func (t *Tracker) over(i int) bool {
	n := &t.nodes[i]
	s := n.spell
	return n.surprised() && s.rounds == 1 && s.member > leastMember && s.excess > 0 && s.length < shortSpell*t.ahead.unit
}

// Waits says whether all rounds wait for all nodes.
func (t *Tracker) Waits() bool {
	return !t.judges && t.round.rule.Quorum == 1 && !t.cluster.Collect.Timed()
}
