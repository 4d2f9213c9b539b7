package sim

import (
	"math"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
)

// How many nodes have outages, how often they begin, how long they last and how many never end.
func TestOutages(t *testing.T) {
	k := cluster.Outage{Share: 0.5, Rate: 0.02, Rounds: 30, Lasting: 0.25}
	const rounds = 4000
	var has, lasting moments
	begun, idle, spell, ended := 0., 0., 0., 0.
	for i := range 2000 {
		o := &newOutages([]cluster.Outage{k}, 7, i)[0]
		has.count(o.rate > 0)
		before := false
		for range rounds {
			in := o.advance(&k)
			switch {
			case in && !before:
				begun++
				lasting.count(o.left < 0)
			case !in && before:
				ended++
			}
			if !before && o.rate > 0 {
				idle++
			}
			if in && o.left > 0 {
				spell++
			}
			before = in
		}
	}
	share(t, "share", has, k.Share)
	share(t, "share that lasts", lasting, k.Lasting)
	near(t, "rate", begun/idle, k.Rate, math.Sqrt(k.Rate/idle))
	near(t, "mean length", spell/ended, k.Rounds, k.Rounds/math.Sqrt(ended))
	k.Spread = 0.5
	var often, long moments
	for i := range 4000 {
		o := &newOutages([]cluster.Outage{k}, 8, i)[0]
		if long.add(math.Log(o.rounds / k.Rounds)); o.rate > 0 {
			often.add(math.Log(o.rate / k.Rate))
		}
	}
	near(t, "spread of rates", often.sd(), 0.5, 0.5/math.Sqrt(2*often.n))
	near(t, "spread of lengths", long.sd(), 0.5, 0.5/math.Sqrt(2*long.n))
	if math.Abs(often.mean()) > 0.05 || math.Abs(long.mean()) > 0.05 {
		t.Errorf("means of logarithms %v and %v", often.mean(), long.mean())
	}
}

// A mute node stays there, takes work, and is lost with it a heartbeat later; a slow one hands in
// late; neither changes anything else.
func TestMuteNodeStays(t *testing.T) {
	p, err := profile.New("d", "w", []profile.Point{{MicroBatch: 1, Seconds: 1}, {MicroBatch: 10, Seconds: 10}}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster.Cluster{Workload: "w", GlobalBatch: 6}
	for range 3 {
		c.Nodes = append(c.Nodes, cluster.Node{Profile: p, Limit: profile.NoLimit})
	}
	at := func(slow float64) *Simulator {
		return New(c, cluster.Conditions{Outages: []cluster.Outage{{Share: 1, Rate: 1, Rounds: 1e9, Slowdown: slow}}}, 3)
	}
	mute := at(0)
	mute.nodes[0].mute, mute.nodes[1].mute = false, false
	for range 2 {
		if !mute.Present()[2] || !mute.Truth().Mute[2] {
			t.Fatalf("present %v, mute %v", mute.Present(), mute.Truth().Mute)
		}
		mute.nodes[0].mute, mute.nodes[1].mute = false, false
		r, err := mute.Round(t.Context(), cluster.Plan{Sizes: []int{2, 2, 2}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Nodes[2].Status != cluster.Lost || r.Nodes[2].OOM || r.Accepted != 4 || r.Wait.Seconds() != 32 {
			t.Errorf("%v, %d samples, %v", r.Nodes[2].Status, r.Accepted, r.Wait)
		}
	}
	slow := at(7)
	if got := slow.Truth(); got.Slowdown[1] != 7 || got.Mute[1] {
		t.Errorf("slowdown %v, mute %v", got.Slowdown[1], got.Mute[1])
	}
	if r, err := slow.Round(t.Context(), cluster.Plan{Sizes: []int{2, 2, 2}}); err != nil || r.Wait.Seconds() != 14 {
		t.Errorf("%v, %v", r, err)
	}
	// A copy goes on by itself.
	k := cluster.Conditions{Outages: []cluster.Outage{{Share: 1, Rate: 0.1, Rounds: 5}}}
	one, two := New(c, k, 1), &Simulator{}
	two.CopyFrom(one)
	for range 50 {
		if _, err := two.Round(t.Context(), cluster.Plan{Sizes: []int{2, 2, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := New(c, k, 1)
	for range 50 {
		a, err := one.Round(t.Context(), cluster.Plan{Sizes: []int{2, 2, 2}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := fresh.Round(t.Context(), cluster.Plan{Sizes: []int{2, 2, 2}})
		if err != nil || a.Wait != b.Wait {
			t.Fatalf("%v and %v, %v", a.Wait, b.Wait, err)
		}
	}
}
