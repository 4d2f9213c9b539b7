package live

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"evenkeel/cluster"
)

// own is a rank's report that its share is done.
func own(number, plan, samples int, seconds float64) *OwnReport {
	return &OwnReport{Round: number, Plan: plan, RankReport: RankReport{Seconds: seconds, Samples: samples, MicroSteps: min(samples, 1)}}
}

// Two of three ranks close a round; the third's gradient counts as aged in the next, by hand.
func TestOwnRounds(t *testing.T) {
	c := plain(30, 3)
	c.Collect = cluster.Collect{Quorum: cluster.Quorum{Count: 2}, Grace: 100 * time.Millisecond, MaxStaleness: 10 * time.Second}
	g := NewGeneration(c)
	hand := func(number int, now time.Duration) {
		g.Hand(cluster.Plan{Number: number, Sizes: []int{10, 10, 10}, Collect: c.Collect}, now)
	}
	hand(1, 0)
	send := func(rank, number, plan int, at time.Duration, want Verdict) {
		t.Helper()
		x := own(number, plan, 10, at.Seconds())
		x.Pause = float64(10 * rank)
		if v, err := g.TakeOwn(rank, x, at); v != want || err != nil {
			t.Fatalf("rank %d: %v, %v", rank, v, err)
		}
	}
	send(0, 0, 1, time.Second, Accepted)
	if r := g.Next(time.Second); r != nil {
		t.Fatalf("a round of one: %+v", r)
	}
	send(0, 0, 1, time.Second, Duplicate)
	send(0, 1, 1, time.Second, Early)
	send(1, 0, 1, 2*time.Second, Accepted)
	if r := g.Next(2 * time.Second); r != nil {
		t.Fatalf("a round without grace: %+v", r)
	}
	r := g.Next(3 * time.Second)
	if r == nil || r.Wait != 2100*time.Millisecond || r.Accepted != 20 || r.Plan != 1 || r.Nodes[2].Status != cluster.Late || r.Nodes[0].Seconds != 1 || r.Nodes[0].Pause != 0 || r.Nodes[1].Pause != 10 {
		t.Fatalf("%+v", r)
	}
	if again := g.Next(3 * time.Second); again != nil {
		t.Fatal("a round twice")
	}
	hand(2, 3*time.Second)
	send(0, 1, 1, 3*time.Second, Early)    // its share of plan 1 is in, that of plan 2 is not done
	send(2, 0, 1, 4*time.Second, Accepted) // the first round's
	send(0, 1, 2, 4*time.Second, Accepted)
	send(1, 1, 2, 5*time.Second, Accepted)
	if r = g.Next(6 * time.Second); r == nil || r.Round != 1 || r.Accepted != 30 || r.Nodes[2].Aged != 10 || r.Nodes[2].Behind != 1 || r.Plan != 2 {
		t.Fatalf("%+v", r)
	}
	if _, _, err := g.Take(round(0, 2, []int{10, 10, 10}), 0); !errors.Is(err, ErrMixed) {
		t.Errorf("a report of all ranks: %v", err)
	}
}

// Memory that ran out is told with its micro-batch, and what the rank did all the same counts.
func TestOwnOutOfMemory(t *testing.T) {
	g := NewGeneration(plain(20, 2))
	g.Hand(cluster.Plan{Number: 1, Sizes: []int{10, 10}}, 0)
	a, b := own(0, 1, 10, 1), own(0, 1, 0, 0)
	a.OutOfMemory, b.OutOfMemory = 10, 8
	for rank, x := range []*OwnReport{a, b} {
		if v, err := g.TakeOwn(rank, x, time.Second); v != Accepted || err != nil {
			t.Fatal(v, err)
		}
	}
	r := g.Next(time.Second)
	if r == nil || !r.Nodes[0].OOM || r.Nodes[0].TooLarge != 10 || r.Nodes[0].Status != cluster.In || r.Nodes[0].Seconds != 0 ||
		r.Nodes[1].Status != cluster.Lost || r.Nodes[1].TooLarge != 8 {
		t.Fatalf("%+v", r)
	}
}

// A micro-batch that did not fit is reported only in its round.
func TestOwnMemoryIsOfItsRound(t *testing.T) {
	c := plain(20, 2)
	c.Collect.Quorum.Count = 1
	g := NewGeneration(c)
	for k := range 2 {
		g.Hand(cluster.Plan{Number: k + 1, Sizes: []int{10, 10}, Collect: c.Collect}, 0)
		for rank := range 2 - k {
			x := own(k, k+1, 10, 1)
			x.OutOfMemory = 10 * rank
			if v, err := g.TakeOwn(1-rank, x, time.Duration(k+1)*time.Second); v != Accepted || err != nil {
				t.Fatal(v, err)
			}
		}
		r := g.Next(time.Duration(k+1)*time.Second + 1)
		if r == nil || r.Nodes[0].OOM != (k == 0) {
			t.Fatalf("round %d: %+v", k, r)
		}
	}
}

// A rank that was lost at the timeout and hands in its share later does not delay others, and its gradient does not count for a newer share.
func TestOwnAfterTimeout(t *testing.T) {
	for name, share := range map[string]int{"left out": 0, "with a new share": 10} {
		c := plain(20, 2)
		c.Collect.Timeout = 5 * time.Second
		g := NewGeneration(c)
		send := func(rank, number, plan int, at time.Duration) {
			t.Helper()
			if v, err := g.TakeOwn(rank, own(number, plan, 10, 1), at); v != Accepted || err != nil {
				t.Fatalf("%s: rank %d: %v, %v", name, rank, v, err)
			}
		}
		g.Hand(cluster.Plan{Number: 1, Sizes: []int{10, 10}, Collect: c.Collect}, 0)
		send(0, 0, 1, time.Second)
		send(1, 0, 1, 6*time.Second)
		r := g.Next(6 * time.Second)
		if r == nil || r.Wait != 5*time.Second || r.Nodes[1].Status != cluster.Lost {
			t.Fatalf("%s: %+v", name, r)
		}
		g.Hand(cluster.Plan{Number: 2, Sizes: []int{20 - share, share}, Collect: c.Collect}, 6*time.Second)
		send(0, 1, 2, 7*time.Second)
		if share > 0 {
			if r = g.Next(7 * time.Second); r != nil {
				t.Fatalf("%s: its old gradient passes for the new one: %+v", name, r)
			}
			send(1, 1, 2, 8*time.Second)
		}
		want := 2 * time.Second
		if share > 0 {
			want = 3 * time.Second
		}
		if r = g.Next(8 * time.Second); r == nil || r.Wait != want || r.Accepted != 10+share {
			t.Fatalf("%s: %+v", name, r)
		}
	}
}

// In whatever order and however often ranks report, each gradient counts once, in a round of a plan that was
// handed out, never above its share; and rounds go on as long as reports come.
func TestOwnRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := plain(30, 3)
		c.Collect = cluster.Collect{Quorum: cluster.Quorum{Count: rapid.IntRange(1, 3).Draw(t, "quorum")}, Grace: 50 * time.Millisecond}
		if rapid.Bool().Draw(t, "timeout") {
			c.Collect.Timeout = time.Second
		}
		g := NewGeneration(c)
		plan, now, accepted, counted, rounds := 1, time.Duration(0), 0, 0, 0
		hand := func() { g.Hand(cluster.Plan{Number: plan, Sizes: []int{10, 10, 10}, Collect: c.Collect}, now) }
		hand()
		next, delivered := [3]int{}, [3]int{}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now += time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond
			rank := rapid.IntRange(0, 2).Draw(t, "rank")
			number := max(next[rank]-rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "again"), 0)
			named := max(plan-rapid.IntRange(0, 2).Draw(t, "lag"), 1)
			v, err := g.TakeOwn(rank, own(number, named, 10, 0.1), now)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case number < next[rank] && v != Duplicate, number == next[rank] && v == Duplicate:
				t.Fatalf("rank %d, report %d of %d: %v", rank, number, next[rank], v)
			case v == Accepted:
				next[rank]++
				accepted += 10
				if named < delivered[rank] {
					t.Fatalf("rank %d has delivered plan %d, and now %d", rank, delivered[rank], named)
				}
				delivered[rank] = named
			}
			for {
				r := g.Next(now)
				if r == nil {
					break
				}
				rounds++
				counted += r.Accepted
				if r.Plan != plan || r.Round != rounds-1 || r.Start+r.Wait > now {
					t.Fatalf("plan %d at %v: %+v", plan, now, r)
				}
				plan++
				hand()
			}
		}
		if counted > accepted {
			t.Fatalf("%d samples were accepted, %d counted", accepted, counted)
		}
		if c.Collect.Timeout == 0 && accepted-counted > 60 { // the open round has at most an older and a newer gradient of each
			t.Fatalf("%d samples were accepted, %d counted", accepted, counted)
		}
	})
}
