package sim

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// alone is a preset without what all presets have.
func alone(t *testing.T, name string) cluster.Conditions {
	return cluster.Conditions{Stress: preset(t, name).Stress}
}

// slowdowns are those of every node in every round.
func slowdowns(c cluster.Conditions, nodes, rounds int) [][]float64 {
	all := make([][]float64, nodes)
	walk(c, nodes, rounds, func(i, _ int, n *node) { all[i] = append(all[i], n.slowdown) })
	return all
}

// share is the mean of what is 1 or 0, with the standard error of a share p.
func share(t *testing.T, what string, m moments, p float64) {
	t.Helper()
	near(t, what, m.mean(), p, math.Sqrt(p*(1-p)/m.n))
}

func (m *moments) count(is bool) {
	if is {
		m.add(1)
	} else {
		m.add(0)
	}
}

func TestRacks(t *testing.T) {
	c := alone(t, "racks")
	size := c.Racks.Size
	c.Racks.Size, c.Racks.AtStart = 1, 0.2
	spells(t, "racks", c.Racks.Episode, c, func(n *node) spell { return n.stress.spell })

	c.Racks.Size = size
	const racks = 3000
	all := slowdowns(c, racks*size-1, 300)
	var slow, beside moments
	for r := range racks {
		rack := all[r*size : min((r+1)*size, len(all))]
		for _, other := range rack[1:] {
			if !slices.Equal(rack[0], other) {
				t.Fatalf("neighbours in rack %d differ", r)
			}
		}
		slow.count(rack[0][299] > 1)
		if r > 0 && all[(r-1)*size][299] > 1 {
			beside.count(rack[0][299] > 1)
		}
	}
	// A rack knows nothing of the one before: slow as often beside a slow one as anywhere.
	if p := slow.mean(); math.Abs(beside.mean()-p) > 4*math.Sqrt(p*(1-p)/beside.n) {
		t.Errorf("beside a slow rack %v are slow, in all %v", beside.mean(), p)
	}
}

func TestDiurnal(t *testing.T) {
	c := alone(t, "diurnal")
	period := int(c.Diurnal.Rounds)
	var first moments
	for i, slow := range slowdowns(c, 5000, 2*period) {
		first.add(math.Log(slow[0]))
		most := 0.
		for r := range period {
			if v := math.Log(slow[r]); math.Abs(v-math.Log(slow[r+period])) > 1e-9 || math.Abs(v+math.Log(slow[r+period/2])) > 1e-9 {
				t.Fatalf("node %d swings to %v in round %d, %v half a period later, %v a period later", i, slow[r], r, slow[r+period/2], slow[r+period])
			}
			most = max(most, math.Log(slow[r]))
		}
		if math.Abs(most/c.Diurnal.Amplitude-1) > 0.001 {
			t.Fatalf("node %d swings by %v", i, most)
		}
	}
	// Phases are spread evenly: the nodes are at any moment where one is over time.
	sd := c.Diurnal.Amplitude / math.Sqrt2
	near(t, "sd over nodes", first.sd(), sd, sd/math.Sqrt(8*first.n))
	if math.Abs(first.mean()) > 4*sd/math.Sqrt(first.n) {
		t.Errorf("mean over nodes %v", first.mean())
	}
}

func TestCreep(t *testing.T) {
	c := alone(t, "creep")
	k := c.Creep
	var creeps moments
	for i, slow := range slowdowns(c, 5000, int(3*k.Rounds)) {
		is := slow[1] > 1
		creeps.count(is)
		for r, v := range slow {
			want := 1.
			if is {
				want = min(1+float64(r)/k.Rounds, k.Most)
			}
			if v != want {
				t.Fatalf("node %d, round %d: slowdown %v, want %v", i, r, v, want)
			}
		}
	}
	share(t, "share", creeps, k.Share)
}

func TestModes(t *testing.T) {
	c := alone(t, "bimodal")
	k := c.Modes
	var flipping, begin, changes moments
	for i, slow := range slowdowns(c, 5000, int(30*k.Rounds)) {
		flips := slices.Max(slow) > 1
		if flipping.count(flips); !flips {
			continue
		}
		begin.count(slow[0] > 1)
		for r, v := range slow {
			if v != 1 && v != 1+k.Excess {
				t.Fatalf("node %d, round %d: slowdown %v", i, r, v)
			}
			if r > 0 {
				changes.count(v != slow[r-1])
			}
		}
	}
	share(t, "share", flipping, k.Share)
	share(t, "begin slow", begin, 0.5)
	share(t, "changes", changes, 1/k.Rounds)
}

func TestWrong(t *testing.T) {
	c := alone(t, "wrong-profile")
	k := c.Wrong
	var wrong, slower moments
	for i, slow := range slowdowns(c, 20_000, 3) {
		v := slow[0]
		if slow[2] != v || v != 1 && v != k.Factor && v != 1/k.Factor {
			t.Fatalf("node %d: %v", i, slow)
		}
		if wrong.count(v != 1); v != 1 {
			slower.count(v > 1)
		}
	}
	share(t, "share", wrong, k.Share)
	share(t, "slower", slower, 0.5)
}

// Skewed clocks change what is reported, by as much in every round, and nothing that happens.
func TestClocks(t *testing.T) {
	c := alone(t, "skewed-clocks")
	var offsets moments
	walk(c, 20_000, 1, func(_, _ int, n *node) { offsets.add(n.stress.clock) })
	near(t, "sd", offsets.sd(), c.Clocks.SD, c.Clocks.SD/math.Sqrt(2*offsets.n))
	if math.Abs(offsets.mean()) > 4*c.Clocks.SD/math.Sqrt(offsets.n) {
		t.Errorf("mean %v", offsets.mean())
	}

	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	k := &cluster.Cluster{GlobalBatch: 40, Collect: cluster.Collect{Quorum: cluster.Quorum{Share: 0.8}, MaxStaleness: 3e9}}
	for range 40 {
		k.Nodes = append(k.Nodes, cluster.Node{Profile: p, Limit: profile.NoLimit})
	}
	sizes := slices.Repeat([]int{1}, 40)
	base := preset(t, "bursts")
	base.Clocks.SD = 0.6
	skewed := New(k, base, 3)
	base.Clocks.SD = 0
	exact := New(k, base, 3)
	held := false
	for range 100 {
		truth := clone(mustRound(t, exact, sizes))
		seen := clone(mustRound(t, skewed, sizes))
		for i := range seen.Nodes {
			s, r := &seen.Nodes[i], &truth.Nodes[i]
			if s.Measured() != r.Measured() {
				t.Fatalf("node %d: %+v, in truth %+v", i, s, r)
			}
			if r.Measured() {
				off := skewed.nodes[i].stress.clock
				held = held || r.Seconds+off < 0.01*r.Seconds
				if want := max(r.Seconds+off, 0.01*r.Seconds); s.Seconds != want || !(s.Seconds > 0) {
					t.Fatalf("node %d says %v s, took %v, its clock is off by %v", i, s.Seconds, r.Seconds, off)
				}
				if want := max(r.Age+off, 0.01*r.Age); s.Age != want {
					t.Fatalf("node %d says its gradient is %v s old, it is %v", i, s.Age, r.Age)
				}
			}
			s.Seconds, s.Age = r.Seconds, r.Age
		}
		if diff := cmp.Diff(truth, seen); diff != "" {
			t.Fatal("clocks change more than stamps:", diff)
		}
	}
	if !held {
		t.Error("no clock is so far behind that its time had to be held above 0")
	}
}

// Noise beyond what was measured has its median for a bound.
func TestStrongNoise(t *testing.T) {
	var deviations []float64
	var factors moments
	walk(cluster.Conditions{Noise: cluster.Spread{Median: 0.5, Sigma: 0.3}}, 20_000, 5, func(_, round int, n *node) {
		if round == 0 {
			deviations = append(deviations, n.noise)
		}
		if n.noise == 0.5 {
			factors.add(n.factor)
		}
	})
	slices.Sort(deviations)
	if last := len(deviations) - 1; deviations[last/2+last/20] != 0.5 || deviations[last/2-last/20] == 0.5 || deviations[last] != 0.5 {
		t.Errorf("median %v, most %v", deviations[last/2], deviations[last])
	}
	near(t, "quartile", deviations[len(deviations)/4], 0.5*math.Exp(-0.6745*0.3), 0.003)
	near(t, "sd of a round", factors.sd(), 0.5*0.9933, 0.003) // cut at three deviations
	near(t, "mean of a round", factors.mean(), 1, 0.5/math.Sqrt(factors.n))
}

// What is switched on changes nothing else: not what the other conditions draw, nor the
// other stress conditions.
func TestStressApart(t *testing.T) {
	base := preset(t, "drift")
	base.Episodes, base.Failures = preset(t, "bursts").Episodes, preset(t, "failures").Failures
	base.Joins = cluster.Joins{Share: 0.5, Rounds: 20}
	racks, diurnal, creep, modes, wrong, clocks := alone(t, "racks"), alone(t, "diurnal"), alone(t, "creep"), alone(t, "bimodal"), alone(t, "wrong-profile"), alone(t, "skewed-clocks")
	all := base
	all.Stress = cluster.Stress{Racks: racks.Racks, Diurnal: diurnal.Diurnal, Creep: creep.Creep, Modes: modes.Modes, Wrong: wrong.Wrong, Clocks: clocks.Clocks}
	const count = 40
	for i := range count {
		without, with := newNode(&base, 1, 7, i, count), newNode(&all, 1, 7, i, count)
		parts := map[*cluster.Conditions]*node{}
		for _, c := range []*cluster.Conditions{&racks, &diurnal, &creep, &modes, &wrong, &clocks} {
			n := newNode(c, 1, 7, i, count)
			parts[c] = &n
		}
		if with.stress.clock != parts[&clocks].stress.clock {
			t.Fatal("the clock hangs on the other conditions")
		}
		for r := range 300 {
			want := without.slowdown
			for c, n := range parts {
				want *= n.slowdown
				n.advance(c)
			}
			if math.Abs(with.slowdown/want-1) > 1e-12 {
				t.Fatalf("node %d, round %d: slowdown %v, of the parts %v", i, r, with.slowdown, want)
			}
			rest := with
			rest.stress, rest.slowdown = nil, without.slowdown
			if !reflect.DeepEqual(rest, without) {
				t.Fatalf("node %d, round %d: %+v, without %+v", i, r, rest, without)
			}
			without.advance(&base)
			with.advance(&all)
		}
	}
}
