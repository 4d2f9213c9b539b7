package env

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
)

// foreseen plays rounds of equal shares in which node i is slowed by factor(round, i). It returns in which rounds each node was wanted to be
// ready, and in which it was.
func foreseen(t *testing.T, r *rig, rounds int, factor func(round, node int) float64) (wanted, ready [][]bool) {
	t.Helper()
	n, now := len(r.perf), time.Duration(0)
	plain := slices.Clone(r.perf)
	r.tracker.SetRule(r.cluster.Collect, n)
	for round := range rounds {
		w, d := make([]bool, n), make([]bool, n)
		factors := make([]float64, n)
		for i := range w {
			factors[i] = factor(round, i)
			w[i] = r.tracker.nodes[i].wanted
			d[i] = r.perf[i] != plain[i]
			if b := r.tracker.Belief(i).Ahead; b.Ready != d[i] {
				t.Fatalf("round %d, node %d: %+v, and parameters %v of %v", round, i, b, r.perf[i], plain[i])
			}
		}
		wanted, ready = append(wanted, w), append(ready, d)
		report := r.report(20, factors...)
		report.Start = now
		now += report.Wait
		r.tracker.Observe(report)
		r.tracker.Model(r.actions)
		r.tracker.Apply(r.actions, r.perf)
		copy(plain, r.perf)
		r.tracker.Prepare(r.perf)
	}
	return wanted, ready
}

// shares of the rounds in which a node was flagged, of those at which its spells begin and of those outside its spells.
func shareOf(flags [][]bool, node int, factor func(round, node int) float64) (onsets, others float64) {
	began, free := 0.0, 0.0
	for k := len(flags) / 2; k < len(flags); k++ {
		switch before, is := factor(k-1, node) > 1.2, factor(k, node) > 1.2; {
		case before:
		case is:
			began++
			onsets += flag(flags[k][node])
		default:
			free++
			others += flag(flags[k][node])
		}
	}
	return onsets / began, others / free
}

func TestForesight(t *testing.T) {
	gaps := rand.New(rand.NewPCG(3, 4))
	var starts []int // at random
	for at := 10; at < 2000; at += 15 + gaps.IntN(40) {
		starts = append(starts, at)
	}
	since := func(round int) int { // the last start
		k, found := slices.BinarySearch(starts, round+1)
		if !found && k == 0 || k == 0 {
			return 1 << 20
		}
		return round - starts[k-1]
	}
	spell := func(slow bool, by float64) float64 {
		if slow {
			return by
		}
		return 1
	}
	for _, x := range []struct {
		name           string
		racks          string // of the eight nodes
		node           int
		factor         func(round, node int) float64
		onsets, others float64 // at least, at most
		foreseen       bool
		pays           bool
	}{
		{"a period", "aaaaaaaa", 2, func(round, node int) float64 { return spell(node == 2 && round%20 >= 16, 2) }, 0.9, 0.2, true, true},
		{"no period", "aaaaaaaa", 2, func(round, node int) float64 { return spell(node == 2 && since(round) < 4, 2) }, 0.5, 0.5, false, false},
		{"a follower", "aaaabbbb", 3, func(round, node int) float64 { return spell(node >= 2 && node < 4 && since(round-6*(node-2)) < 5, 4) }, 0.9, 0.5, true, false},
		{"in another rack", "aaabbbbb", 3, func(round, node int) float64 { return spell(node >= 2 && node < 4 && since(round-6*(node-2)) < 5, 2) }, 0.5, 0.5, false, false},
		{"many together", "abcdefgh", 5, func(round, node int) float64 { return spell(node%2 == 1 && round%25 < 4, 3) }, 0.1, 0.1, false, false},
		{"together by chance", "abcdefgh", 5, func(round, node int) float64 {
			return spell(node == 5 && round%20 >= 16 || node%2 == 1 && round/20 == 10 && round%20 >= 16, 2)
		}, 0.9, 0.2, true, true},
		{"a sign", "abcdefgh", 5, func(round, node int) float64 {
			if k := since(round); node == 5 && k < 3 {
				return 1.1
			} else if node == 5 && k < 8 {
				return 2
			}
			return 1
		}, 0.9, 0.15, true, true},
	} {
		r := newRig(t, 8)
		for i := range r.cluster.Nodes {
			r.cluster.Nodes[i].Rack = x.racks[i : i+1]
		}
		wanted, ready := foreseen(t, r, 800, x.factor)
		onsets, others := shareOf(wanted, x.node, x.factor)
		if x.foreseen && (onsets < x.onsets || others > x.others) || !x.foreseen && onsets > x.onsets {
			t.Errorf("%s: a spell is foreseen in %v of the rounds in which one begins, and in %v of the others", x.name, onsets, others)
		}
		if onsets, _ = shareOf(ready, x.node, x.factor); (onsets > 0.8) != x.pays {
			t.Errorf("%s: ready in %v of the rounds in which a spell begins", x.name, onsets)
		}
		for i := range r.perf {
			if _, others = shareOf(ready, i, x.factor); x.factor(0, i) == 1 && x.factor(3, i) == 1 && !x.pays && others > 0.02 {
				t.Errorf("%s: node %d is ready in %v of the rounds", x.name, i, others)
			}
		}
	}
}

// A node is made ready for a long spell by its slowdown, and for a short one by its delay.
func TestReadyParameters(t *testing.T) {
	r := newRig(t, 8)
	n := &r.cluster.Nodes[5]
	plain := cluster.Performance{Overhead: n.Network + 1, PerSample: 0.1}
	o := &r.tracker.nodes[5].outlook
	r.tracker.ahead.unit = 10
	*o = outlook{excess: 1, rounds: 5}
	if got, want := r.tracker.expect(5, plain), n.Slowed(plain, 2); got != want {
		t.Errorf("a long spell: %v, want %v", got, want)
	}
	*o = outlook{excess: 1, rounds: 1.2}
	if got, want := r.tracker.expect(5, plain), (cluster.Performance{Overhead: n.Network + 7, PerSample: 0.1}); math.Abs(got.Overhead-want.Overhead) > 1e-9 || got.PerSample != want.PerSample {
		t.Errorf("a short one: %v, want %v", got, want)
	}
	if got := r.tracker.slower(5); math.Abs(got-1/0.4) > 1e-9 {
		t.Errorf("a delay of .6 rounds slows it down by %v", got)
	}
}

// Whether being ready pays, by hand: eight nodes take ten seconds each, and one of them is slowed down to twenty.
func TestAccountByHand(t *testing.T) {
	for _, x := range []struct {
		name  string
		ready bool
		came  bool
		want  float64
	}{
		{"not ready for a spell that came", false, true, 1 - 11.0/20},
		{"not ready for one that did not", false, false, 1 - 11.0/10},
		{"ready for a spell that came", true, true, 20/1.1/10 - 1},
		{"ready for one that did not", true, false, 1/1.1 - 1},
	} {
		r := newRig(t, 8)
		report := r.report(20, 1, 1, 1, 1, 1, 1, 1, 1)
		for i := range report.Nodes {
			report.Nodes[i].Seconds = 10
			r.tracker.nodes[i].fresh = true
		}
		n := &r.tracker.nodes[3]
		n.wanted, n.outlook = true, outlook{chance: 0.5, excess: 1, rounds: 5}
		h := &r.tracker.ahead
		h.ready, h.longer = x.ready, 1.1
		switch {
		case x.came && !x.ready:
			report.Nodes[3].Seconds = 20
		case !x.came && x.ready:
			report.Nodes[3].Seconds = 5
		}
		r.tracker.account(report)
		if h.profits != 1 || math.Abs(h.profit.Mean-x.want) > 1e-9 {
			t.Errorf("%s: saves %v in %v rounds, want %v", x.name, h.profit.Mean, h.profits, x.want)
		}
	}
}

func TestReadinessHasToPay(t *testing.T) {
	h := ahead{profits: 2}
	h.profit.Mean = 1
	if h.pays() {
		t.Error("two rounds are enough")
	}
	if h.profits = 3; !h.pays() {
		t.Error("three rounds are not enough")
	}
	if h.profits, h.profit.Spread = 100, 4; !h.pays() {
		t.Error("a mean of seven standard errors is not enough")
	}
	if h.profit.Mean = 0.1; h.pays() {
		t.Error("a mean of .4 standard errors is enough")
	}
}

// After a short spell of many nodes a node goes back to its level at once. It does not after a long one, in the second slow round, if
// it has hardly taken part before, or where few nodes are slow.
func TestRecall(t *testing.T) {
	for _, x := range []struct {
		name   string
		slow   int // nodes in the spell, of eight
		spell  spells
		quorum float64
		want   bool
	}{
		{"a short spell", 3, spells{rounds: 1, member: 0.3, excess: 2, length: 1.9}, 1, true},
		{"a long one", 3, spells{rounds: 1, member: 0.3, excess: 2, length: 2.1}, 1, false},
		{"its second round", 3, spells{rounds: 2, member: 0.3, excess: 2, length: 1.9}, 1, false},
		{"no spell", 3, spells{rounds: 0, member: 0.3, excess: 2, length: 1.9}, 1, false},
		{"spells of single nodes", 3, spells{rounds: 1, member: 0.2, excess: 2, length: 1.9}, 1, false},
		{"the first spell", 3, spells{rounds: 1, member: 0.3, length: 1.9}, 1, false},
		{"few nodes", 2, spells{rounds: 1, member: 0.3, excess: 2, length: 1.9}, 1, false},
		{"a quorum", 3, spells{rounds: 1, member: 0.3, excess: 2, length: 1.9}, 0.5, false},
	} {
		r := newRig(t, 8)
		factors := slices.Repeat([]float64{1}, 8)
		for range 20 {
			r.round(-1, factors...)
		}
		r.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: x.quorum}}, 8)
		for i := range x.slow {
			factors[i] = 3
		}
		r.tracker.Observe(r.report(20, factors...))
		r.tracker.Model(r.actions)
		for i := range r.actions {
			*r.tracker.nodes[i].spell = x.spell
			r.tracker.nodes[i].spell.length *= r.tracker.ahead.unit
		}
		before := slices.Clone(r.actions)
		r.tracker.Recall(r.actions)
		for i, a := range r.actions {
			if back := x.want && i < x.slow; back && a != modelReturn+modelRoom || !back && a != before[i] {
				t.Errorf("%s: node %d: %v", x.name, i, Actions[a].Trust)
			}
		}
	}
}

// Rounds that do not wait for all are left as they are.
func TestForesightIsForRoundsThatWait(t *testing.T) {
	for _, x := range []struct {
		quorum   float64
		deadline bool
		want     bool
	}{{1, false, true}, {0.5, false, false}, {1, true, false}} {
		r := newRig(t, 8)
		r.cluster.Collect.Quorum.Share, r.cluster.Collect.AutoDeadline = x.quorum, x.deadline
		wanted, _ := foreseen(t, r, 200, func(round, node int) float64 { return 1 + flag(node == 2 && round%20 >= 16) })
		if got := slices.ContainsFunc(wanted, func(w []bool) bool { return w[2] }); got != x.want {
			t.Errorf("quorum %v, deadline %v: a node is wanted to be ready: %v", x.quorum, x.deadline, got)
		}
	}
}

// Nodes that expect a spell at the same time hold the others up only once, so together they need a higher chance.
func TestReadyTogether(t *testing.T) {
	for _, x := range []struct {
		nodes  int
		chance float64
		want   bool
	}{{1, 0.2, true}, {1, 0.1, false}, {4, 0.2, false}, {4, 0.6, true}} {
		r := newRig(t, 8)
		r.tracker.SetRule(cluster.Collect{}, 8)
		for i := range x.nodes {
			r.tracker.nodes[i].outlook = outlook{chance: x.chance, excess: 1, rounds: 5}
		}
		r.tracker.Prepare(r.perf)
		if got := r.tracker.nodes[0].wanted; got != x.want {
			t.Errorf("%d nodes with a chance of %v: wanted %v", x.nodes, x.chance, got)
		}
	}
}

func TestManyTogether(t *testing.T) {
	for _, x := range []struct {
		nodes int
		begun float64
		want  bool
	}{{8, 2, false}, {8, 3, true}, {100, 19, false}, {100, 20, true}} {
		if tr := (Tracker{nodes: make([]track, x.nodes)}); tr.many(x.begun) != x.want {
			t.Errorf("%v of %d nodes: %v", x.begun, x.nodes, !x.want)
		}
	}
}

// A node is warned by its leader's spell, if that is as large as spells are. Nodes in a rack follow the one before them until another
// one is found, and keep that while its spells foretell theirs.
func TestLeaders(t *testing.T) {
	r := newRig(t, 8)
	for i := range r.cluster.Nodes {
		r.cluster.Nodes[i].Rack = "a"
	}
	spell := func(i int) *spells { return r.tracker.nodes[i].spell }
	r.tracker.ahead.unit, r.tracker.ahead.excess, r.tracker.ahead.length = 10, 1, 50
	spell(3).rounds, spell(3).since = 1, 100
	for _, x := range []struct{ most, want float64 }{{1.4, 0}, {1.6, 100}} {
		spell(3).most = x.most
		if r.tracker.warn(3); spell(4).near.from != x.want || spell(5).near.from != 0 {
			t.Errorf("a spell of %v warns at %v, want %v; the next node but one at %v", x.most, spell(4).near.from, x.want, spell(5).near.from)
		}
	}
	begin := func(i int, at float64) {
		spell(i).since = at
		r.tracker.begins(i)
	}
	begin(2, 100)
	begin(4, 120)
	if l, lag := r.tracker.leader(4), spell(4).near.lag; l != 2 || lag != 20 {
		t.Errorf("node 4 follows %d, by %v s", l, lag)
	}
	for _, x := range []struct {
		misses float64
		want   int
	}{{0, 2}, {5, 3}} {
		spell(4).near.hits, spell(4).near.misses = 1, x.misses
		begin(3, spell(4).begun+1000)
		if begin(4, spell(3).begun+10); r.tracker.leader(4) != x.want {
			t.Errorf("after %v misses node 4 follows %d, want %d", x.misses, r.tracker.leader(4), x.want)
		}
	}
	adopted := NewTracker(r.cluster)
	adopted.Adopt(r.tracker, []int{4, 5, 6, 7, 0, 1, 2, 3})
	if s := adopted.nodes[0].spell; s.leader != -1 || s.near.from != 0 || s.count == 0 || s == spell(4) {
		t.Errorf("another order of nodes leaves %+v", s)
	}
}

// A clue whose time is over is given up, as a miss of the leader, and a part of one of the node's own intervals, of which the next one begins.
func TestCluesExpire(t *testing.T) {
	r := newRig(t, 8)
	h, s := &r.tracker.ahead, r.tracker.nodes[4].spell
	h.unit = 10
	s.own = clue{lag: 200, count: 5, hits: 3, from: 1000}
	s.near = clue{lag: 50, count: 5, hits: 3, from: 1100}
	for _, x := range []struct{ now, own, near, hits float64 }{{1160, 1000, 1100, 3}, {1190, 1000, 0, 3 * clueKeep}, {1260, 1200, 0, 3 * clueKeep}} {
		h.now = x.now
		r.tracker.expire(4)
		if s.own.from != x.own || s.near.from != x.near || math.Abs(s.near.hits-x.hits) > 1e-9 {
			t.Errorf("at %v: the node's own clue counts from %v, want %v; its leader's from %v, want %v, with %v hits, want %v", x.now, s.own.from, x.own, s.near.from, x.near, s.near.hits, x.hits)
		}
	}
	if s.near.misses != 1 || s.own.misses != unseen {
		t.Errorf("%v and %v misses", s.near.misses, s.own.misses)
	}
}
