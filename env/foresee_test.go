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
		{"many together", "abcdefgh", 5, func(round, node int) float64 { return spell(node%2 == 1 && round%25 == 0, 3) }, 0.9, 0.05, true, true},
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

// After a short spell of many nodes a node goes back to its level at once. It does not after a long one, in the second slow round, or if
// it has hardly taken part before.
func TestRecall(t *testing.T) {
	r := newRig(t, 8)
	factors := slices.Repeat([]float64{1}, 8)
	for range 20 {
		r.round(-1, factors...)
	}
	r.tracker.Observe(r.report(20, slices.Repeat([]float64{3}, 8)...))
	r.tracker.Model(r.actions)
	short := spells{rounds: 1, member: 0.5, excess: 2, length: 1.9 * r.tracker.ahead.unit}
	r.tracker.ahead.run.count = 1
	for i := range r.actions {
		*r.tracker.nodes[i].spell = short
	}
	r.tracker.nodes[1].spell.length *= 1.1
	r.tracker.nodes[2].spell.rounds = 2
	r.tracker.nodes[3].spell.member = 0.2
	r.tracker.nodes[4].spell.excess = 0
	before := slices.Clone(r.actions)
	r.tracker.Recall(r.actions)
	for i, a := range r.actions {
		if own := i == 0 || i > 4; own && a != modelReturn+modelRoom || !own && a != before[i] {
			t.Errorf("node %d: %v", i, Actions[a].Trust)
		}
	}
	r.tracker.SetRule(cluster.Collect{Quorum: cluster.Quorum{Share: 0.5}}, 8)
	if r.tracker.Recall(r.actions); r.actions[0] != modelReturn {
		t.Errorf("with a quorum %v, want the least margin", r.actions[0])
	}
}

// Rounds that do not wait for all are left as they are.
func TestForesightIsForRoundsThatWait(t *testing.T) {
	r := newRig(t, 8)
	r.cluster.Collect.Quorum.Share = 0.5
	wanted, _ := foreseen(t, r, 200, func(round, node int) float64 { return 1 + flag(node == 2 && round%20 < 4) })
	for k := range wanted {
		if slices.Contains(wanted[k], true) {
			t.Fatalf("round %d: a node is wanted to be ready", k)
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
