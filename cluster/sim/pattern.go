package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"evenkeel/cluster"
)

// Streams of the generators that draw patterns: for each pattern and those who meet its spells together, for each pattern and
// node, and for turns.
const (
	patternStream = 1 << 46
	memberStream  = 1 << 47
	turnStream    = 1 << 48
	patternStep   = 1 << 20 // between the streams of two patterns
)

const (
	// mostSpells bounds how many spells are gone through one by one, and how many pieces a node's work has.
	mostSpells = 1 << 10
	// endOfCourse is when slowness ends, in nominal rounds: then the clock no longer tells short spells apart.
	endOfCourse = 1e9
)

// clock is the part of the conditions that advances by time.
type clock struct {
	unit    float64  // seconds of a nominal round; 0: nothing advances by time
	courses []course // of the nodes, up to the opening of the round
	pauses  [][]tenant
	tenants []tenant // for looking ahead
}

// course is what slows a node down over time; piecewise constant.
type course struct {
	turn     turn
	tenants  []tenant
	replayed func(t float64) (slow, until float64) // nil: no trace is replayed by time
}

// tenant is a pattern at one node: the current spell, or the next one.
type tenant struct {
	pcg            rand.PCG // every node of a group has the same, and so sees the same spells
	pattern        *cluster.Pattern
	index          int     // of the pattern
	pace           float64 // factor of Every and Length
	slow           float64
	begin, end     float64
	number         int // of the spell
	place, members int // in the group
}

// turn is the pattern that acts, or none.
type turn struct {
	pcg   rand.PCG
	turns *cluster.Spread
	of    int // patterns; 0: all act at once
	index int
	until float64
}

func newClock(c *cluster.Cluster, conditions *cluster.Conditions, replay *replay, seed uint64) clock {
	timed := conditions.Replay.Timed && replay.job != nil
	if len(conditions.Patterns) == 0 && !timed {
		return clock{}
	}
	k := clock{unit: nominalRound(c), courses: make([]course, len(c.Nodes)), pauses: make([][]tenant, len(c.Nodes))}
	for p := range conditions.Patterns {
		groups := grouped(c, &conditions.Patterns[p])
		for i := range c.Nodes {
			switch t, has := newTenant(&conditions.Patterns[p], p, i, groups[i], seed); {
			case has && t.pattern.Announced:
				t.due(0) // nobody could announce it
				k.pauses[i] = append(k.pauses[i], t)
			case has:
				k.courses[i].tenants = append(k.courses[i].tenants, t)
			}
		}
	}
	for i := range k.courses {
		if conditions.Turns.Median > 0 {
			k.courses[i].turn = newTurn(len(conditions.Patterns), seed, &conditions.Turns)
		}
		if timed {
			k.courses[i].replayed = func(t float64) (float64, float64) { return replay.at(i, t) }
		}
	}
	return k
}

// nominalRound is how long the cluster takes for the global batch without noise, in seconds; a second if it cannot hold the batch.
func nominalRound(c *cluster.Cluster) float64 {
	known := c.Revealed()
	perf := known.Nominal()
	for i := range perf {
		perf[i] = known.Nodes[i].Slowed(perf[i], cmp.Or(known.Nodes[i].Hidden.Slowdown, 1))
	}
	finish, err := cluster.Allocate(known, nil, perf, make([]int, len(perf)))
	if err != nil {
		return 1
	}
	return max(finish, 1e-9)
}

// group is a node's: its number, the node's place in it, and how many nodes it has.
type group struct{ number, place, members int }

// grouped says who meets the spells of a pattern together.
func grouped(c *cluster.Cluster, p *cluster.Pattern) []group {
	names, named := make([]string, len(c.Nodes)), false
	for i := range c.Nodes {
		switch p.Per {
		case cluster.PerHost:
			names[i] = c.Nodes[i].Host
		case cluster.PerRack:
			names[i] = c.Nodes[i].Rack
		}
		named = named || names[i] != ""
	}
	first, members, groups := map[string]int{}, map[int]int{}, make([]group, len(c.Nodes))
	for i, name := range names {
		number := i
		switch {
		case p.Per == cluster.PerRun:
			number = 0
		case name != "":
			if _, known := first[name]; !known {
				first[name] = i
			}
			number = first[name]
		case !named && (p.Per == cluster.PerHost || p.Per == cluster.PerRack):
			number = i / cmp.Or(p.Size, 4)
		}
		groups[i] = group{number: number, place: members[number]}
		members[number]++
	}
	for i := range groups {
		groups[i].members = members[groups[i].number]
	}
	return groups
}

func newTenant(p *cluster.Pattern, index, node int, g group, seed uint64) (t tenant, has bool) {
	t = tenant{pattern: p, index: index, members: g.members}
	t.pcg.Seed(seed, patternStream+uint64(index)*patternStep+uint64(g.number))
	rng := rand.New(&t.pcg)
	chance, first := rng.Float64(), rng.IntN(g.members)
	t.place = (g.place - first + g.members) % g.members
	t.pace, t.slow = math.Exp(p.Vary*rng.NormFloat64()), p.Slowdown(rng.NormFloat64())
	if p.Per == cluster.PerRun {
		chance = rand.New(rand.NewPCG(seed, memberStream+uint64(index)*patternStep+uint64(node))).Float64()
	}
	// Two periods before the run, so that it may begin in a spell.
	t.begin = (rng.Float64()-2)*p.Every.Median*t.pace + p.Lag*float64(t.place)
	t.end = t.begin
	return t, chance < cmp.Or(p.Share, 1)
}

// next goes to the next spell.
func (p *tenant) next() {
	rng := rand.New(&p.pcg)
	gap, length := p.pattern.Every.Draw(rng.NormFloat64())*p.pace, p.pattern.Length.Draw(rng.NormFloat64())*p.pace
	p.begin = max(p.begin+gap, p.end)
	p.end = p.begin + length
	p.number++
}

// at returns the slowdown at a time, no earlier than those asked for before, and until when it stays so.
func (p *tenant) at(t float64) (slow, until float64) {
	for n := 0; t >= p.end; n++ {
		if n == mostSpells { // in a round without measure
			p.begin, p.end = t, t
		}
		p.next()
	}
	switch c := p.pattern; {
	case c.Hop && p.number%p.members != p.place:
		return 1, p.end
	case t < p.begin-c.Notice:
		return 1, p.begin - c.Notice
	case t < p.begin:
		return 1 + c.Sign, p.begin
	case c.Ramp:
		for step := 1.0; step < 8; step++ {
			if until = p.begin + (p.end-p.begin)*step/8; t < until {
				return 1 + (p.slow-1)*step/8, until
			}
		}
	}
	return p.slow, p.end
}

// due is how long the pauses are together that begin after the time asked for before, up to a time; both in nominal rounds.
func (p *tenant) due(t float64) (sum float64) {
	for n := 0; p.begin <= t && n < mostSpells; n++ {
		if !p.pattern.Hop || p.number%p.members == p.place {
			sum += p.end - p.begin
		}
		p.next()
	}
	return sum
}

// due is how many seconds of pauses node i makes before its work of a round that opens now, if those acted that began since the
// round before.
func (k *clock) due(i int, now time.Duration) (seconds float64) {
	turn := &k.courses[i].turn
	for p := range k.pauses[i] {
		t := &k.pauses[i][p]
		if due := t.due(now.Seconds() / k.unit); turn.of == 0 || turn.index == t.index {
			seconds += due * k.unit
		}
	}
	return seconds
}

func newTurn(patterns int, seed uint64, turns *cluster.Spread) turn {
	t := turn{of: patterns, turns: turns}
	t.pcg.Seed(seed, turnStream)
	rng := rand.New(&t.pcg)
	t.index, t.until = rng.IntN(patterns+1), turns.Draw(rng.NormFloat64())*rng.Float64()
	return t
}

func (u *turn) at(t float64) (index int, until float64) {
	for n := 0; t >= u.until; n++ {
		rng := rand.New(&u.pcg)
		if n == mostSpells {
			u.until = t
		}
		u.index = (u.index + 1 + rng.IntN(u.of)) % (u.of + 1)
		u.until += u.turns.Draw(rng.NormFloat64())
	}
	return u.index, u.until
}

// at returns the slowdown at a time, no earlier than those asked for before, and until when it stays so.
func (c *course) at(t float64) (slow, until float64) {
	slow, until = 1, math.Inf(1)
	if t >= endOfCourse {
		return slow, until
	}
	if c.replayed != nil {
		slow, until = c.replayed(t)
	}
	turn := -1
	if c.turn.of > 0 {
		index, end := c.turn.at(t)
		turn, until = index, min(until, end)
	}
	for k := range c.tenants {
		if p := &c.tenants[k]; turn < 0 || turn == p.index {
			s, end := p.at(t)
			slow, until = slow*s, min(until, end)
		}
	}
	return slow, until
}

// future is what slows node i down from now on. It only goes forwards, and ends with the next one.
type future struct {
	course
	unit, now float64
}

func (s *Simulator) future(i int) future {
	k := &s.clock
	if k.unit == 0 {
		return future{}
	}
	c := k.courses[i]
	k.tenants = append(k.tenants[:0], c.tenants...)
	c.tenants = k.tenants
	return future{c, k.unit, s.now.Seconds()}
}

// pass goes on, so many seconds from now, until so much work is done or so much time is over; all in seconds, work at slowdown 1.
// It returns both.
func (f *future) pass(from, work, time float64) (done, took float64) {
	t := (f.now + from) / f.unit
	work, time = work/f.unit, time/f.unit
	for n := 0; ; n++ {
		slow, until := f.at(t)
		piece := min(time-took, (work-done)*slow)
		if t+piece <= until {
			return (done + piece/slow) * f.unit, (took + piece) * f.unit
		}
		if n == mostSpells { // the rest goes as that before
			more := min(work/done, time/took)
			return more * done * f.unit, more * took * f.unit
		}
		done, took, t = done+(until-t)/slow, took+until-t, until
	}
}

// stretch is how long work takes, so many seconds from now, that takes so many seconds at slowdown 1.
func (f *future) stretch(from, work float64) float64 {
	if f.unit == 0 {
		return work
	}
	_, took := f.pass(from, work, math.Inf(1))
	return took
}

// coming is cluster.Truth.Coming.
func (s *Simulator) coming(i int, seconds float64) float64 {
	seconds = max(seconds, 1e-9)
	f := s.future(i)
	f.now += s.truth.Pause[i]
	done, _ := f.pass(0, math.Inf(1), seconds)
	return s.nodes[i].slowdown * seconds / done
}
