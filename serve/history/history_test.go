package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
)

func close6(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

// nodes without profiles, of two devices.
func plain(n, batch int) *cluster.Cluster {
	c := &cluster.Cluster{Workload: "unnamed", GlobalBatch: batch}
	for i := range n {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprintf("n%d", i), Device: []string{"a", "b"}[i%2], Limit: batch})
	}
	return c
}

// in is a report in which each node took so long for so many samples; a time of 0: it handed in nothing.
func in(wait float64, sizes []int, times ...float64) *cluster.Report {
	r := &cluster.Report{Wait: time.Duration(wait * 1e9)}
	for i, s := range times {
		n := cluster.NodeReport{Status: cluster.Lost}
		if s > 0 {
			n = cluster.NodeReport{Status: cluster.In, Size: sizes[i], Samples: sizes[i], Seconds: s, Idle: wait - s}
			r.Accepted += sizes[i]
		}
		r.Nodes = append(r.Nodes, n)
	}
	r.Counted = float64(r.Accepted)
	return r
}

// Shares and times of equal shares, worked out by hand.
func TestEven(t *testing.T) {
	c := plain(3, 100)
	if got := even(c); !slices.Equal(got, []int{34, 33, 33}) {
		t.Errorf("%v", got)
	}
	c.Nodes[0].Shapes, c.Nodes[0].Limit = []int{8}, 8 // only eights
	if got := even(c); got[0] != 32 {
		t.Errorf("%v", got)
	}
	for _, x := range []struct {
		name             string
		perf             []cluster.Performance
		report           *cluster.Report
		samples, seconds float64
	}{
		// 60, 30, 10 samples in 6, 6, 5 s are 0.1, 0.2, 0.5 s a sample: 34, 33, 33 take 3.4, 6.6, 16.5 s, and a second passed beside.
		{"each by its own pace", nil, in(7, []int{60, 30, 10}, 6, 6, 5), 100, 17.5},
		// Of the last, which believed needs 2 + 0.3 s a sample, 5 s for 10 were as believed: 2 + 33*0.3.
		{"a part that does not grow", []cluster.Performance{{PerSample: 0.1}, {PerSample: 0.2}, {Overhead: 2, PerSample: 0.3}}, in(6, []int{60, 30, 10}, 6, 6, 5), 100, 11.9},
		// The same twice as slow as believed.
		{"twice as slow", []cluster.Performance{{PerSample: 0.1}, {PerSample: 0.2}, {Overhead: 2, PerSample: 0.3}}, in(10, []int{60, 30, 10}, 6, 6, 10), 100, 23.8},
		{"lost, and never measured", nil, in(7, []int{60, 30, 10}, 6, 6, 0), 67, 7.6},
		{"nothing came", nil, in(7, []int{60, 30, 10}, 0, 0, 0), 0, 0},
	} {
		c := plain(3, 100)
		var h History
		h.Start(0, 1, c)
		perf := x.perf
		if perf == nil {
			perf = []cluster.Performance{{PerSample: 1}, {PerSample: 1}, {PerSample: 1}}
		}
		h.Took(time.Second, x.report, perf, 0)
		p := h.recent[0]
		if !close6(p.evenSeconds, x.seconds) || !close6(p.evenGood, x.samples) {
			t.Errorf("%s: %v samples in %v s, by hand %v in %v", x.name, p.evenGood, p.evenSeconds, x.samples, x.seconds)
		}
	}
	// A node that was measured before counts with what is believed of it: 33 samples of 0.4 s.
	c = plain(3, 100)
	var h History
	h.Start(0, 1, c)
	perf := []cluster.Performance{{PerSample: 0.1}, {PerSample: 0.2}, {PerSample: 0.4}}
	h.Took(1, in(7, []int{60, 30, 10}, 6, 6, 5), perf, 0)
	h.Took(2, in(7, []int{60, 30, 10}, 6, 6, 0), perf, 0)
	if p := h.recent[1]; !close6(p.evenSeconds, 13.2+1) || p.evenGood != 100 {
		t.Errorf("%+v", p)
	}
	// At a noise scale of 50 samples a round of 67 of 100 is worth 67*(150/117) at the rate of its time.
	h.Took(3, in(7, []int{34, 33, 33}, 6, 6, 0), perf, 50)
	if p := h.recent[2]; !close6(p.good, 67*150.0/117) || !close6(p.idle, 2.0/3) {
		t.Errorf("%+v", p)
	}
}

// What is told of two rounds of 40 samples in 2 s and 60 in 3 s, of which 1 s and 2 s were idle: 20 samples/s and 0.6 of the time; equal
// shares 80 in 10 s.
func TestTell(t *testing.T) {
	a := point{number: 1, at: 2, rounds: 1, seconds: 2, samples: 40, good: 40, idle: 1, evenSeconds: 4, evenGood: 32}
	b := point{number: 2, at: 5, rounds: 1, seconds: 3, samples: 60, good: 60, idle: 2, evenSeconds: 6, evenGood: 48}
	r := tell([]point{a, b, join(a, b), {number: 3, rounds: 1, seconds: 1, good: 5}})
	if !slices.Equal(r.Goodput, []float64{20, 20, 20, 5}) || !slices.Equal(r.Even, []float64{8, 8, 8, 0}) || !slices.Equal(r.Idle, []float64{0.5, 0.6667, 0.6, 0}) ||
		!slices.Equal(r.Seconds, []float64{2, 3, 2.5, 1}) || !slices.Equal(r.At, []float64{2, 5, 5, 0}) || !slices.Equal(r.Number, []int{1, 2, 2, 3}) {
		t.Errorf("%+v", r)
	}
}

// A whole life in few points says the same in sum as every round by itself.
func TestWhole(t *testing.T) {
	for _, n := range []int{1, 2, 3, 511, 512, 513, 1024, 1025, 5000, 20001} {
		var s series
		var all point
		for k := range n {
			x := float64(k%7 + 1)
			p := point{number: k + 1, at: float64(k), rounds: 1, seconds: x, samples: 2 * x, good: 3 * x, idle: x / 2, evenSeconds: 4 * x, evenGood: 5 * x, shares: []float32{float32(k)}}
			all.seconds, all.samples, all.good, all.idle, all.evenSeconds, all.evenGood = all.seconds+x, all.samples+2*x, all.good+3*x, all.idle+x/2, all.evenSeconds+4*x, all.evenGood+5*x
			s.add(p)
		}
		points := s.points
		if s.open.rounds > 0 {
			points = append(points, s.open)
		}
		if len(points) > mostWhole || n > mostWhole && len(points) < mostWhole/2 {
			t.Errorf("%d rounds in %d points", n, len(points))
		}
		var sum point
		before := 0
		for k, p := range points {
			sum.rounds, sum.seconds, sum.samples, sum.good = sum.rounds+p.rounds, sum.seconds+p.seconds, sum.samples+p.samples, sum.good+p.good
			sum.idle, sum.evenSeconds, sum.evenGood = sum.idle+p.idle, sum.evenSeconds+p.evenSeconds, sum.evenGood+p.evenGood
			if mean := float64(before+p.number-1) / 2; math.Abs(float64(p.shares[0])-mean) > 1e-3*mean+1e-3 {
				t.Fatalf("point %d of rounds %d to %d: mean share %v, not %v", k, before+1, p.number, p.shares[0], mean)
			}
			if p.number-before != int(p.rounds) || k < len(points)-1 && p.rounds != points[0].rounds {
				t.Fatalf("point %d: %v rounds, up to %d after %d", k, p.rounds, p.number, before)
			}
			before = p.number
		}
		if sum.rounds != float64(n) || !close6(sum.seconds, all.seconds) || !close6(sum.samples, all.samples) || !close6(sum.good, all.good) || !close6(sum.idle, all.idle) ||
			!close6(sum.evenSeconds, all.evenSeconds) || !close6(sum.evenGood, all.evenGood) {
			t.Errorf("%d rounds: %+v, one by one %+v", n, sum, all)
		}
	}
}

// Few nodes have a line each; of many, lines say how the shares of each device lie.
func TestLines(t *testing.T) {
	l := newLines(plain(4, 8))
	if got := l.of([]int{1, 2, 3, 4}); !slices.Equal(got, []float32{1, 2, 3, 4}) || l.names[2] != "n2" || l.device[2] != "a" {
		t.Errorf("%v %+v", got, l)
	}
	c := plain(66, 66)
	l = newLines(c)
	shares := make([]int, 66)
	for i := range shares {
		shares[i] = i
	}
	if got := l.of(shares); !slices.Equal(got, []float32{0, 16, 32, 48, 64, 1, 17, 33, 49, 65}) || l.names[5] != "b, least" || l.names[9] != "b, most" || l.device[9] != "b" {
		t.Errorf("%v %+v", got, l)
	}
	for i := range c.Nodes {
		c.Nodes[i].Device = fmt.Sprint("d", i)
	}
	l = newLines(c)
	if got := l.of(shares); len(got) != 60 || got[54] != 10 || got[55] != 11 || got[59] != 65 || l.names[59] != "other devices, most" || l.names[54] != "d10, most" || len(l.device) != 60 {
		t.Errorf("%v %+v", got, l.names)
	}
}

// Paces that change within a minute are one line, which names those that changed the most.
func TestTempo(t *testing.T) {
	c := plain(8, 8)
	var h History
	h.Start(0, 1, c)
	at := time.Duration(0)
	decide := func(slowness ...float64) {
		perf := make([]cluster.Performance, 8)
		for i := range perf {
			perf[i].PerSample = slowness[i]
			h.paces[i].measured = paceKnown
		}
		for range paceHeld {
			at += time.Second
			h.follow(at, perf)
		}
	}
	decide(1, 1, 1, 1, 1, 1, 1, 1)
	decide(1, 2, 1, 1, 1, 1, 1, 1)
	decide(1.3, 2, 1, 1, 1, 1, 1, 1)
	decide(1.3, 1, 1, 1, 1, 1, 1, 1)
	decide(1.3, 1, 1, 3, 1.5, 1, 1, 1)
	decide(1.3, 1, 1, 3, 1.5, 0.2, 1, 1)
	at += time.Minute
	decide(1.3, 1, 1, 3, 1.5, 0.2, 1, 9)
	var told []string
	for _, l := range h.View(0).Log[1:] {
		told = append(told, l.Text)
	}
	want := []string{"changed pace: n1 2 times as slow", "changed pace: n5 5 times as fast, n3 3 times as slow, n1 2 times as fast and 2 more; 3 slower, 2 faster"}
	if !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}

// run plays rounds of nodes that take so long per sample, by the model's own control. A pace of 0 hands in nothing.
func run(t *testing.T, h *History, control *agent.Control, a *agent.Agent, report *cluster.Report, first, rounds int, pace ...float64) *cluster.Report {
	t.Helper()
	present := make([]bool, len(pace))
	for i := range present {
		present[i] = true
	}
	for k := first; k < first+rounds; k++ {
		plan, err := control.Next(report, present)
		if err != nil {
			t.Fatal(err)
		}
		h.Decided(time.Duration(k)*time.Second, &plan, report, control, a.Performance())
		times, wait := make([]float64, len(pace)), 0.0
		for i, p := range pace {
			times[i] = p * float64(plan.Sizes[i])
			wait = max(wait, times[i])
		}
		report = in(wait, plan.Sizes, times...)
		for i, b := range plan.Sizes {
			if b == 0 {
				report.Nodes[i] = cluster.NodeReport{}
			}
		}
		report.Round, report.Plan = k, plan.Number
		h.Took(time.Duration(k)*time.Second+time.Second, report, a.Performance(), 0)
	}
	return report
}

// What happens to nodes is told in words: who became slow, who fell silent, who is back.
func TestStory(t *testing.T) {
	c := plain(4, 400)
	a := agent.NewModel(c)
	control := &agent.Control{Cluster: c, Policy: a}
	var h History
	h.Note(0, "job", "the job was created")
	h.Start(0, 1, c)
	r := run(t, &h, control, a, nil, 0, 2, 0.01, 0.01, 0.01, 0.02)
	if text := h.changes[3].text(); !strings.Contains(text, "100 to 43 samples: its pace is known now (2 s for 100 samples)") {
		t.Errorf("%q", text)
	}
	r = run(t, &h, control, a, r, 2, 18, 0.01, 0.01, 0.01, 0.02)
	r = run(t, &h, control, a, r, 20, 2, 0.03, 0.01, 0.01, 0.02)
	if text := h.changes[0].text(); !strings.Contains(text, "slow") || !strings.Contains(text, "s for 1") {
		t.Errorf("%q", text)
	}
	r = run(t, &h, control, a, r, 22, 18, 0.03, 0.01, 0.01, 0.02)
	r = run(t, &h, control, a, r, 40, 10, 0.03, 0, 0.01, 0.02)
	if v := h.View(0); v.Nodes.State[1] != "silent" && v.Nodes.State[1] != "tried" || v.Nodes.State[2] != "in" || !strings.Contains(v.Nodes.Why[1], "no gradient came") && v.Nodes.State[1] == "silent" {
		t.Errorf("%+v", v.Nodes)
	}
	r = run(t, &h, control, a, r, 50, 400, 0.03, 0.01, 0.01, 0.02)
	run(t, &h, control, a, r, 450, 20, 0.01, 0.01, 0.01, 0.02)
	var story []string
	for _, l := range h.View(0).Log {
		story = append(story, l.Kind+" "+l.Text)
	}
	want := []string{"job the job was created", "start start 1 of the process group: 4 ranks, global batch 400", "pace changed pace: n0 2.9 times as slow", "out left out, as no gradient came: n1", "back back, and taking part again: n1", "pace changed pace: n0 3 times as fast"}
	if len(story) != len(want) {
		t.Fatalf("%q", story)
	}
	for k := range want {
		if !strings.HasPrefix(story[k], want[k]) {
			t.Errorf("%q, not %q", story[k], want[k])
		}
	}
	if _, why := h.Node(1); !strings.Contains(why, "samples") || h.View(0).Nodes.State[1] != "in" {
		t.Errorf("%q", why)
	}
	// Another start: what was of other nodes is not told of these.
	h.Start(time.Hour, 2, plain(5, 400))
	v := h.View(0)
	if last := v.Log[len(v.Log)-1].Text; last != "start 2 of the process group: 5 ranks, global batch 400; 1 of them are new" {
		t.Errorf("%q", last)
	}
	if len(v.Lanes) != 0 || v.Rounds.Shares[0] != nil || v.Names.Nodes[4] != "n4" || v.Nodes.State[0] != "new" || h.Whole().Shares[0] != nil {
		t.Errorf("%+v", v)
	}
}

// A view tells what is new, each thing once, and no more than is remembered.
func TestView(t *testing.T) {
	c := plain(2, 10)
	var h History
	if v := h.View(0); !v.Complete || v.Names != nil || len(v.Nodes.Share) != 0 {
		t.Errorf("%+v", v)
	}
	h.Start(0, 1, c)
	perf := []cluster.Performance{{PerSample: 1}, {PerSample: 1}}
	after, told, logged := 0, 0, 0
	for k := range 1000 {
		h.Took(time.Duration(k), in(5, []int{5, 5}, 5, 4), perf, 0)
		if k%10 == 3 {
			h.Note(time.Duration(k), "job", fmt.Sprint(k))
		}
		if k%70 == 0 {
			v := h.View(after)
			for _, n := range v.Rounds.Number {
				if told++; n != told {
					t.Fatalf("round %d told as the %dth", n, told)
				}
			}
			logged += len(v.Log)
			if after > 0 && (v.Complete || v.Names != nil) || len(v.Lanes) > mostLanes || v.Lanes[len(v.Lanes)-1].Number != k+1 {
				t.Fatalf("%+v", v)
			}
			after = v.Seq
		}
	}
	if told != 981 || logged != 1+98 {
		t.Errorf("%d rounds, %d lines", told, logged)
	}
	if v := h.View(after + 1000); !v.Complete || len(v.Rounds.Number) != mostRecent || v.Rounds.Number[0] != 701 || len(v.Lanes) != mostLanes || v.Lanes[0].Status != "11" {
		t.Errorf("a number that never was: %+v", v)
	}
	if v := h.View(h.seq); len(v.Rounds.Number)+len(v.Lanes)+len(v.Log) != 0 {
		t.Errorf("nothing new: %+v", v)
	}
}

// Of many nodes some are named.
func TestWords(t *testing.T) {
	for n, want := range map[int]string{1: "0", 4: "0, 1, 2, 3", 5: "0, 1, 2 and 2 more"} {
		if got := list([]string{"0", "1", "2", "3", "4"}[:n]); got != want {
			t.Errorf("%d names: %q, want %q", n, got, want)
		}
	}
	for ratio, want := range map[float64]string{1.5: "1.5 times as slow", 1.25: "25% slower", 0.8: "25% faster", 0.25: "4 times as fast"} {
		if got := pace(ratio); got != want {
			t.Errorf("%v: %q", ratio, got)
		}
	}
	for x, want := range map[float64]float64{123456: 123500, 0.00123456: 0.001235, 0: 0, -2.00049: -2, math.Inf(1): 0} {
		if got := round4(x); got != want {
			t.Errorf("%v: %v", x, got)
		}
	}
}
