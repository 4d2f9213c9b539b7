package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/trace"
)

// timed is a simulator of nodes that take a second a sample, a sample each: a nominal round is a second.
func timed(t testing.TB, nodes int, seed uint64, patterns ...cluster.Pattern) *Simulator {
	t.Helper()
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{GlobalBatch: nodes}
	for range nodes {
		c.Nodes = append(c.Nodes, cluster.Node{Profile: p, Limit: profile.NoLimit})
	}
	s := New(c, cluster.Conditions{Patterns: patterns}, seed)
	if len(patterns) > 0 && math.Abs(s.clock.unit-1) > 1e-9 {
		t.Fatal("unit", s.clock.unit)
	}
	return s
}

// A nominal round is by the true profiles and constant slowdowns.
func TestNominalRound(t *testing.T) {
	c := timed(t, 2, 0).cluster
	c.GlobalBatch = 8
	c.Nodes[1].Hidden.Slowdown = 3 // 6 samples in 6 s, 2 in 6 s
	c.Nodes[0].Profile, c.Nodes[0].Hidden.Profile = nil, c.Nodes[0].Profile
	if got := nominalRound(c); math.Abs(got-6) > 1e-9 {
		t.Error(got)
	}
	if got := nominalRound(&cluster.Cluster{GlobalBatch: 8, Nodes: make([]cluster.Node, 1)}); got != 1 {
		t.Error(got)
	}
}

// Spells of the whole run reach a share of the nodes.
func TestShareOfARun(t *testing.T) {
	s := timed(t, 2000, 4, preset(t, "saves").Patterns[0])
	var has moments
	begins := map[float64]bool{}
	for i := range s.clock.courses {
		tenants := s.clock.courses[i].tenants
		if has.count(len(tenants) == 1); len(tenants) == 1 {
			begins[tenants[0].begin] = true
		}
	}
	if share(t, "share", has, 0.5); len(begins) != 1 {
		t.Errorf("%d beginnings", len(begins))
	}
}

type piece struct{ from, to, slow float64 }

// slowPieces are the times until end at which a node is slow.
func slowPieces(c *course, end float64) []piece {
	var all []piece
	for t := 0.0; t < end; {
		slow, until := c.at(t)
		if slow != 1 {
			all = append(all, piece{t, until, slow})
		}
		t = until
	}
	return all
}

func TestPeriodic(t *testing.T) {
	p := cluster.Pattern{Share: 0.5, Every: cluster.Spread{Median: 30, Sigma: 0.1}, Length: cluster.Spread{Median: 5, Sigma: 0.2}, Vary: 0.4, Excess: cluster.Spread{Median: 0.777, Sigma: 0.8}}
	s := timed(t, 10_000, 3, p)
	var has, begin, excess, periods, gaps, lengths moments
	for i := range s.clock.courses {
		c := &s.clock.courses[i]
		has.count(len(c.tenants) == 1)
		if len(c.tenants) == 0 {
			continue
		}
		pace := c.tenants[0].pace
		periods.add(math.Log(pace))
		all := slowPieces(c, 1000)
		begin.count(all[0].from == 0)
		excess.add(math.Log(all[0].slow - 1))
		for k := 1; k < len(all)-1; k++ {
			if all[k].slow != all[0].slow {
				t.Fatalf("node %d: %v", i, all)
			}
			gaps.add(math.Log((all[k+1].from - all[k].from) / pace / 30))
			lengths.add(math.Log((all[k].to - all[k].from) / pace / 5))
		}
	}
	share(t, "share", has, 0.5)
	share(t, "in a spell at the start", begin, 5*math.Exp(0.02)/(30*math.Exp(0.005)))
	near(t, "sd of excess", excess.sd(), 0.8, 0.8/math.Sqrt(2*excess.n))
	near(t, "sd of periods over nodes", periods.sd(), 0.4, 0.4/math.Sqrt(2*periods.n))
	near(t, "sd of gaps", gaps.sd(), 0.1, 0.1/math.Sqrt(2*gaps.n))
	near(t, "sd of lengths", lengths.sd(), 0.2, 0.2/math.Sqrt(2*lengths.n))
	for what, m := range map[string]moments{"excess": {excess.n, excess.sum - excess.n*math.Log(0.777), excess.squares}, "periods": periods, "gaps": gaps, "lengths": lengths} {
		if math.Abs(m.mean()) > 4*0.8/math.Sqrt(m.n) {
			t.Errorf("median of %s is off by %v", what, m.mean())
		}
	}
}

// The nodes of a rack meet the same spells one after the other; racks have spells of their own.
func TestCascade(t *testing.T) {
	p := cluster.Pattern{Per: cluster.PerRack, Every: cluster.Spread{Median: 80, Sigma: 0.7}, Length: cluster.Spread{Median: 12, Sigma: 0.3}, Excess: cluster.Spread{Median: 0.5, Sigma: 0.5}, Lag: 2}
	s := timed(t, 4002, 5, p)
	firsts := map[int]float64{}
	var origin [4]float64
	for r := 0; r < 4000; r += 4 {
		var racks [4][]piece // in the order in which a spell reaches them
		for i := range 4 {
			place := s.clock.courses[r+i].tenants[0].place
			racks[place] = slowPieces(&s.clock.courses[r+i], 500)
			if place == 0 {
				origin[i]++
			}
			racks[place] = slices.DeleteFunc(racks[place], func(q piece) bool { return q.from < 10 })
		}
		for k, q := range racks[0] {
			if q.to > 490 {
				continue
			}
			for i := range 4 {
				o := slices.IndexFunc(racks[i], func(o piece) bool { return math.Abs(o.from-q.from-2*float64(i)) < 1e-9 })
				if o < 0 || math.Abs(racks[i][o].to-q.to-2*float64(i)) > 1e-9 || racks[i][o].slow != q.slow {
					t.Fatalf("rack %d, spell %d: %v, node %d has %v", r, k, q, i, racks[i])
				}
			}
		}
		if len(racks[0]) > 0 {
			firsts[r] = racks[0][0].from
		}
	}
	for _, n := range origin {
		if math.Abs(n-250) > 4*math.Sqrt(187.5) {
			t.Errorf("spells begin at %v", origin)
		}
	}
	same := 0
	for r, from := range firsts {
		if from == firsts[r+4] {
			same++
		}
	}
	if same > 0 || len(firsts) < 990 {
		t.Errorf("%d of %d racks have their neighbour's spells", same, len(firsts))
	}
}

// Named racks and hosts go before consecutive nodes; a node without one is alone.
func TestGrouped(t *testing.T) {
	names := []string{"a", "b", "", "a", "", "b", "a"}
	c := &cluster.Cluster{Nodes: make([]cluster.Node, len(names))}
	numbers := func(per string, size int) (all []int) {
		for _, g := range grouped(c, &cluster.Pattern{Per: per, Size: size}) {
			all = append(all, g.number, g.place, g.members)
		}
		return all
	}
	consecutive := []int{0, 0, 3, 0, 1, 3, 0, 2, 3, 1, 0, 3, 1, 1, 3, 1, 2, 3, 2, 0, 1}
	if got := numbers(cluster.PerHost, 3); !slices.Equal(got, consecutive) {
		t.Error(got)
	}
	for i, n := range names {
		c.Nodes[i].Rack = n
	}
	if got := numbers(cluster.PerHost, 3); !slices.Equal(got, consecutive) {
		t.Error("racks are no hosts", got)
	}
	if got := numbers(cluster.PerRack, 3); !slices.Equal(got, []int{0, 0, 3, 1, 0, 2, 2, 0, 1, 0, 1, 3, 4, 0, 1, 1, 1, 2, 0, 2, 3}) {
		t.Error(got)
	}
	if got := numbers(cluster.PerRun, 3); got[0] != 0 || !slices.Equal(got[15:], []int{0, 5, 7, 0, 6, 7}) {
		t.Error(got)
	}
	if got := numbers("", 3); !slices.Equal(got[:6], []int{0, 0, 1, 1, 0, 1}) {
		t.Error(got)
	}
}

// A hopping tenant is at one node at a time, in order.
func TestHopping(t *testing.T) {
	const nodes = 7
	s := timed(t, nodes, 11, cluster.Pattern{Per: cluster.PerRun, Every: cluster.Spread{Median: 9, Sigma: 0.2}, Length: cluster.Spread{Median: 6, Sigma: 0.2}, Excess: cluster.Spread{Median: 1}, Hop: true})
	type stay struct {
		piece
		node int
	}
	var all []stay
	for i := range nodes {
		for _, q := range slowPieces(&s.clock.courses[i], 2000) {
			all = append(all, stay{q, i})
		}
	}
	slices.SortFunc(all, func(a, b stay) int { return int(math.Copysign(1, a.from-b.from)) })
	if len(all) < 190 || len(all) > 240 {
		t.Error(len(all), "stays")
	}
	for k := 1; k < len(all); k++ {
		if a, b := all[k-1], all[k]; b.node != (a.node+1)%nodes || b.from < a.to || b.slow != 2 {
			t.Fatalf("after %+v %+v", a, b)
		}
	}
}

func TestRampAndNotice(t *testing.T) {
	s := timed(t, 1, 2, cluster.Pattern{Every: cluster.Spread{Median: 40}, Length: cluster.Spread{Median: 16}, Excess: cluster.Spread{Median: 0.8}, Ramp: true, Notice: 3, Sign: 0.05})
	all := slowPieces(&s.clock.courses[0], 400)
	all = all[slices.IndexFunc(all, func(q piece) bool { return q.slow == 1.05 && q.from > 0 }):]
	for k, q := range all[:len(all)/9*9] {
		want := piece{slow: 1 + 0.8*float64(k%9)/8}
		if want.from, want.to = all[0].from+40*float64(k/9)+1+2*float64(k%9), all[0].from+40*float64(k/9)+3+2*float64(k%9); k%9 == 0 {
			want = piece{all[0].from + 40*float64(k/9), all[0].from + 40*float64(k/9) + 3, 1.05}
		}
		if math.Abs(q.from-want.from) > 1e-9 || math.Abs(q.to-want.to) > 1e-9 || math.Abs(q.slow-want.slow) > 1e-9 {
			t.Fatalf("piece %d: %v, want %v", k, q, want)
		}
	}
	if len(all) < 80 {
		t.Error(len(all), "pieces")
	}
}

// Patterns take turns; none is one of them.
func TestTurns(t *testing.T) {
	always := func(excess float64) cluster.Pattern {
		return cluster.Pattern{Every: cluster.Spread{Median: 1}, Length: cluster.Spread{Median: 1}, Excess: cluster.Spread{Median: excess}}
	}
	k := cluster.Conditions{Patterns: []cluster.Pattern{always(1), always(2)}, Turns: cluster.Spread{Median: 20, Sigma: 0.3}}
	c := timed(t, 3, 1).cluster
	var lengths moments
	var time [4]float64
	for seed := range uint64(50) {
		s := New(c, k, seed)
		last, since := 0.0, -1.0
		for x := range 1000 {
			at := float64(x)
			slow, _ := s.clock.courses[0].at(at)
			if other, _ := s.clock.courses[2].at(at); other != slow {
				t.Fatalf("at %v one node has the turn %v, one %v", at, slow, other)
			}
			if slow != last {
				if since > 0 {
					lengths.add(math.Log((at - since) / 20))
				}
				last, since = slow, at
			}
			time[int(slow)]++
		}
	}
	near(t, "sd of lengths", lengths.sd(), 0.3, 0.3/math.Sqrt(2*lengths.n)+0.01)
	for slow := 1; slow <= 3; slow++ {
		if math.Abs(time[slow]-50_000/3) > 1500 {
			t.Errorf("turns are %v", time[1:])
		}
	}
}

// randomPattern draws one of any kind.
func randomPattern(t *rapid.T) cluster.Pattern {
	spread := func(name string, low, high, sigma float64) cluster.Spread {
		return cluster.Spread{Median: rapid.Float64Range(low, high).Draw(t, name), Sigma: rapid.Float64Range(0, sigma).Draw(t, name+" sigma")}
	}
	p := cluster.Pattern{
		Per: rapid.SampledFrom([]string{"", cluster.PerHost, cluster.PerRack, cluster.PerRun}).Draw(t, "per"), Size: rapid.IntRange(0, 5).Draw(t, "size"),
		Share: rapid.Float64Range(0, 1).Draw(t, "share"), Every: spread("every", 1, 30, 1), Length: spread("length", 0.1, 20, 1), Vary: rapid.Float64Range(0, 1).Draw(t, "vary"),
		Excess: spread("excess", 0, 5, 2), Ramp: rapid.Bool().Draw(t, "ramp"), Notice: rapid.Float64Range(0, 5).Draw(t, "notice"), Sign: rapid.Float64Range(0, 1).Draw(t, "sign"),
	}
	if p.Per != "" {
		p.Lag, p.Hop = rapid.Float64Range(0, 4).Draw(t, "lag"), rapid.Bool().Draw(t, "hop")
	}
	return p
}

// A plain twin works in small steps. Work begun later does not end earlier; what a node can do in the time that work takes is that
// work. The course does not depend on when it is asked.
func TestFutureAgainstSmallSteps(t *testing.T) {
	const nodes = 6
	rapid.Check(t, func(r *rapid.T) {
		s := timed(t, nodes, rapid.Uint64().Draw(r, "seed"), randomPattern(r), randomPattern(r))
		i, from, work := rapid.IntRange(0, nodes-1).Draw(r, "node"), rapid.Float64Range(0, 60).Draw(r, "from"), rapid.Float64Range(0.01, 8).Draw(r, "work")
		const step = 1.0 / 512
		twin := timed(t, nodes, s.seed, s.conditions.Patterns...).clock.courses[i]
		done, at := 0.0, from
		for x := 0.0; x < from; x += rapid.Float64Range(0.1, 20).Draw(r, "asked") {
			twin.at(x)
		}
		for ; done < work; at += step {
			slow, _ := twin.at(at)
			done += step / slow
		}
		pass := func(from, work, time float64) (float64, float64) {
			f := s.future(i)
			return f.pass(from, work, time)
		}
		did, took := pass(from, work, math.Inf(1))
		if math.Abs(did-work) > 1e-9 || math.Abs(took-(at-from)) > 0.02*(at-from)+0.3 {
			r.Fatalf("%v of %v done in %v, in small steps in %v", did, work, took, at-from)
		}
		if back, _ := pass(from, math.Inf(1), took); math.Abs(back-work) > 1e-9*work+1e-9 {
			r.Fatalf("in %v %v is done, not %v", took, back, work)
		}
		later := rapid.Float64Range(0, 10).Draw(r, "later")
		if _, more := pass(from+later, work, math.Inf(1)); from+later+more < from+took-1e-9 {
			r.Fatalf("begun %v later, it ends at %v, not %v", later, from+later+more, from+took)
		}
	})
}

// Two policies, however long their rounds, meet the same spells at the same time.
func TestSameTimeSameSpells(t *testing.T) {
	k := preset(t, "mixture")
	quick, slow := timed(t, 8, 4).cluster, timed(t, 8, 4).cluster
	quick.GlobalBatch, slow.GlobalBatch = 8, 8
	a, b := New(quick, k, 9), New(slow, k, 9)
	for range 200 {
		mustRound(t, a, slices.Repeat([]int{1}, 8))
		mustRound(t, b, []int{8, 0, 0, 0, 0, 0, 0, 0})
	}
	if a.now >= b.now {
		t.Fatal(a.now, b.now)
	}
	for i := range a.clock.courses {
		for x := a.now.Seconds(); x < b.now.Seconds(); x += 0.5 {
			a.clock.courses[i].at(x)
		}
		for x := b.now.Seconds(); x < b.now.Seconds()+100; x += 0.5 {
			p, _ := a.clock.courses[i].at(x)
			if q, _ := b.clock.courses[i].at(x); p != q {
				t.Fatalf("node %d at %v: %v and %v", i, x, p, q)
			}
		}
	}
}

// Truth tells the mean slowdown of a round to come, and a round takes as long as that says.
func TestComing(t *testing.T) {
	patterns := []cluster.Pattern{preset(t, "thermal").Patterns[0], preset(t, "saves").Patterns[0]}
	s, before := timed(t, 5, 6, patterns...), timed(t, 5, 6, patterns...)
	within := 0
	for range 300 {
		report, truth := mustRound(t, s, slices.Repeat([]int{1}, 5)), before.Truth()
		for i, n := range report.Nodes {
			if got := truth.Coming(i, 1); got != truth.Slowdown[i] {
				t.Fatalf("%v in a round, %v", got, truth.Slowdown[i])
			}
			if got := truth.Coming(i, n.Seconds); math.Abs(got-n.Seconds) > 1e-6 {
				t.Fatalf("a second of work takes %v s, though the slowdown is %v", n.Seconds, got)
			}
			if math.Abs(truth.Coming(i, 1e-6)-n.Seconds) > 0.01 {
				within++
			}
		}
		mustRound(t, before, slices.Repeat([]int{1}, 5))
	}
	if within < 100 {
		t.Error("spells hardly begin within rounds")
	}
}

// A node slows down and recovers between its micro-steps, those after a deadline included.
func TestCourseOfARound(t *testing.T) {
	levels := func(pieces ...float64) func(float64) (float64, float64) { // a slowdown, until when, the next one, ...
		return func(t float64) (float64, float64) {
			for k := 1; k < len(pieces); k += 2 {
				if t < pieces[k] {
					return pieces[k-1], pieces[k]
				}
			}
			return pieces[len(pieces)-1], math.Inf(1)
		}
	}
	round := func(within float64, deadline, overtime float64) []cluster.NodeReport {
		s := timed(t, 2, 1, cluster.Pattern{Share: 1e-9, Every: cluster.Spread{Median: 1}, Length: cluster.Spread{Median: 1}})
		for i := range s.cluster.Nodes {
			s.cluster.Nodes[i].Limit = 1
		}
		s.cluster.GlobalBatch, s.conditions.NoiseWithin = 6, within
		s.cluster.Collect = cluster.Collect{Deadline: time.Duration(deadline * 1e9), Overtime: overtime}
		s.clock.courses[0].replayed, s.clock.courses[1].replayed = levels(1, 3.5, 3), levels(1, 2.5, 10)
		return mustRound(t, s, []int{3, 3}).Nodes
	}
	for _, c := range []struct {
		name                       string
		within, deadline, overtime float64
		samples                    [2]int
		seconds                    [2]float64
	}{
		{"whole shares", 0, 0, 0, [2]int{3, 3}, [2]float64{3, 7.5}},
		{"single micro-steps", 1, 0, 0, [2]int{3, 3}, [2]float64{3, 7.5}},
		{"deadline", 0, 3.1, 0, [2]int{3, 3}, [2]float64{3, 7.5}},
		{"overtime", 0, 3.1, 1, [2]int{5, 3}, [2]float64{8.3 - 0.1, 7.5}}, // waits for .1, then .4 of work in .4, .6 in 1.8, 1 in 3
	} {
		for i, n := range round(c.within, c.deadline, c.overtime) {
			if n.Samples != c.samples[i] || math.Abs(n.Seconds-c.seconds[i]) > 1e-6 {
				t.Errorf("%s: node %d: %d samples in %v s, want %d in %v", c.name, i, n.Samples, n.Seconds, c.samples[i], c.seconds[i])
			}
		}
	}
}

// Announced pauses delay the work of the next round, and everything that comes after them; a node without a share pauses meanwhile.
func TestAnnounced(t *testing.T) {
	p := cluster.Pattern{Per: cluster.PerRun, Every: cluster.Spread{Median: 4}, Length: cluster.Spread{Median: 1.5}, Announced: true}
	s, said, paused := timed(t, 2, 1, p), [2]float64{}, 0
	if s.Truth().Pause[0] != 0 {
		t.Error("a pause before the first round, of which nobody could hear")
	}
	for k := range 40 {
		sizes := []int{1, 1}
		if said[1] > 0 && k%2 == 0 {
			sizes[1] = 0
		}
		r := mustRound(t, s, sizes)
		for i, n := range r.Nodes {
			want := max(said[i]-r.Wait.Seconds(), 0)
			if sizes[i] > 0 {
				if want = 0; math.Abs(n.Seconds-1-said[i]) > 1e-9 {
					t.Errorf("round %d, node %d took %v s, of which it announced %v", k, i, n.Seconds, said[i])
				}
			}
			if said[i] > 0 {
				paused++
			}
			if n.Pause != s.Truth().Pause[i] || math.Abs(n.Pause-want) > 1e-6 && math.Abs(n.Pause-want-1.5) > 1e-6 {
				t.Errorf("round %d, node %d announces %v s, %v are left", k, i, n.Pause, want)
			}
			said[i] = n.Pause
		}
	}
	if paused < 20 {
		t.Errorf("%d pauses", paused)
	}
	s = timed(t, 2, 1, cluster.Pattern{Share: 1e-9, Every: cluster.Spread{Median: 1}, Length: cluster.Spread{Median: 1}})
	s.truth.Pause[0], s.clock.courses[0].replayed = 2, func(at float64) (float64, float64) {
		if at < 2 {
			return 100, 2
		}
		return 3, math.Inf(1)
	}
	if slow := s.coming(0, 1); math.Abs(slow-3) > 1e-9 {
		t.Errorf("%v times as slow after its pause, want 3", slow)
	}
	if n := mustRound(t, s, []int{1, 1}).Nodes[0]; math.Abs(n.Seconds-5) > 1e-9 { // the work is done after the pause
		t.Errorf("%v s", n.Seconds)
	}
	for _, collect := range []cluster.Collect{{Quorum: cluster.Quorum{Count: 1}}, {Deadline: 3100 * time.Millisecond}} {
		s = timed(t, 2, 1)
		s.cluster.Nodes[0].Limit, s.cluster.Collect, s.truth.Pause[0] = 1, collect, 2
		n := mustRound(t, s, []int{3, 1}).Nodes[0]
		if late := collect.Deadline == 0; (n.Status == cluster.Late) != late || !late && (n.Samples != 1 || math.Abs(n.Seconds-3) > 1e-9) || n.Pause != 0 {
			t.Errorf("%+v: %+v", collect, n)
		}
	}
	s = timed(t, 2, 1, p)
	s.clock.courses[1].turn = turn{of: 1, index: 1, until: math.Inf(1), turns: &cluster.Spread{Median: 1}}
	for range 20 {
		if n := mustRound(t, s, []int{1, 1}).Nodes[1]; n.Pause > 0 {
			t.Error("a pause out of turn")
		}
	}
}

// Additions must not change runs without them: checksums of the courses of the presets.
func TestPatternsKeepTheirBits(t *testing.T) {
	for _, p := range []struct{ name, sum string }{
		{"periodic", "6372a6fff6b0ed82"},
		{"saves", "2490a217c94544f5"},
		{"cascade", "0cbb353a3aa7c280"},
		{"thermal", "c1a89dcf5f9321fe"},
		{"announced", "84977cb2fe27f9e7"},
		{"hopping", "539f0c933c9ee237"},
		{"mixture", "ab6188f671ac1060"},
	} {
		s := New(timed(t, 16, 8).cluster, preset(t, p.name), 8)
		sum := fnv.New64a()
		for x := range 600 {
			for i := range s.clock.courses {
				slow, until := s.clock.courses[i].at(0.7 * float64(x))
				fmt.Fprintf(sum, "%.9g %.9g\n", slow, until)
			}
		}
		if got := fmt.Sprintf("%016x", sum.Sum64()); got != p.sum {
			t.Errorf("{%q, %q},", p.name, got)
		}
	}
}

// A trace by time: one of its rounds takes a nominal round over the pace, however long those of the cluster are.
func TestReplayByTime(t *testing.T) {
	tr := recorded.read(t)
	c := timed(t, 5, 0).cluster
	for seed := range uint64(40) {
		pace := []float64{1, 0.5, 3}[seed%3]
		s := New(c, cluster.Conditions{Replay: trace.Replay{Trace: tr, Pace: pace, Timed: true}}, seed)
		rng := rand.New(rand.NewPCG(1, seed))
		for i := range s.clock.courses {
			n, job := &s.replay.nodes[i], s.replay.job
			for x := 0.0; x < 120; {
				slow, until := s.clock.courses[i].at(x)
				if until <= x || until > x+1/pace+1e-9 {
					t.Fatalf("from %v until %v", x, until)
				}
				inside := x + (until-x)*(0.01+0.98*rng.Float64())
				if want := n.worker.At(job.Turn(n.begin + inside*pace)); math.Abs(slow-want) > 1e-12 {
					t.Fatalf("seed %d, node %d at %v: %v, want %v", seed, i, inside, slow, want)
				}
				x = until
			}
			if s.nodes[i].slowdown != 1 {
				t.Fatal("by round as well")
			}
		}
	}
}

// Whatever is valid ends, and time goes forwards.
func FuzzPatterns(f *testing.F) {
	f.Add(uint64(1), byte(3), 20.0, 0.1, 5.0, 0.2, 0.5, 0.5, 2.0, true, true, 3.0, 0.1, 50.0)
	f.Add(uint64(2), byte(0), 1.0, 3.0, 0.01, 3.0, 3.0, 99.0, 0.0, false, false, 1e9, 99.0, 1.0)
	f.Add(uint64(3), byte(2), 1e9, 0.0, 1e9, 0.0, 0.0, 99.0, 1e9, false, true, 0.0, 0.0, 0.0)
	f.Fuzz(func(t *testing.T, seed uint64, per byte, every, scatter, length, sigma, vary, excess, lag float64, hop, ramp bool, notice, sign, turns float64) {
		k := cluster.Conditions{Patterns: []cluster.Pattern{{
			Per: []string{"", cluster.PerHost, cluster.PerRack, cluster.PerRun}[per%4], Size: int(per / 4), Every: cluster.Spread{Median: every, Sigma: scatter},
			Length: cluster.Spread{Median: length, Sigma: sigma}, Vary: vary, Excess: cluster.Spread{Median: excess, Sigma: sigma}, Lag: lag, Hop: hop, Ramp: ramp, Notice: notice, Sign: sign,
		}}, Turns: cluster.Spread{Median: turns}}
		k.Patterns = append(k.Patterns, k.Patterns[0])
		if k.Validate() != nil {
			return
		}
		s := New(timed(t, 6, 0).cluster, k, seed)
		for range 30 {
			r := mustRound(t, s, slices.Repeat([]int{1}, 6))
			if r.Wait <= 0 || r.Wait.Seconds() > 101*101 {
				t.Fatal(r.Wait)
			}
		}
	})
}
