package env

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/env/internal/envtest"
)

// The quantiles of arrivals and their moving average, by hand: the first rounds count alike, later ones a fiftieth each.
func TestQuantilesByHand(t *testing.T) {
	c := envtest.Mixed(t, 4)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	tracker := NewTracker(c)
	const predicted = 2.0
	average := make([]float64, len(cluster.Quorums))
	for round := range 80 {
		seconds := []float64{2, 2.5, 1.8, 3}
		if round%2 == 1 {
			seconds = []float64{1.5, 2.25, 4, 2}
		}
		report := &cluster.Report{Wait: time.Duration(slices.Max(seconds) * 1e9), Accepted: 80, Counted: 80}
		for _, s := range seconds {
			report.Nodes = append(report.Nodes, cluster.NodeReport{Status: cluster.In, Size: 20, Samples: 20, Seconds: s, Idle: slices.Max(seconds) - s})
		}
		tracker.Predict(predicted)
		tracker.Observe(report)
		slices.Sort(seconds)
		for k, q := range cluster.Quorums {
			newest := seconds[int(math.Ceil(q*4))-1]/predicted - 1
			average[k] += (newest - average[k]) * math.Max(1/float64(round+1), 0.02)
			if r := tracker.round; !near(r.newest[k]+2, newest+2) || !near(r.average[k]+2, average[k]+2) {
				t.Fatalf("round %d, quorum %v: %v, on average %v, want %v and %v", round, q, r.newest[k], r.average[k], newest, average[k])
			}
		}
	}
}

// Where only every third node is looked at, as there are so many, rules are worth what all nodes make them worth.
func TestMeansOfSomeOfMany(t *testing.T) {
	const nodes, scale = 2052, 50_000
	c := envtest.Mixed(t, nodes)
	c.Choices = cluster.Choices{Quorum: cluster.Quorums, Grace: cluster.Graces}
	tracker := NewTracker(c)
	tracker.scale = scale
	report := &cluster.Report{Wait: 4 * time.Second, Counted: float64(c.GlobalBatch)}
	var all []cluster.Delivery
	for i := range nodes {
		s := []float64{1, 1.5, 2, 4}[i/3%4]
		size := c.GlobalBatch / nodes
		report.Nodes = append(report.Nodes, cluster.NodeReport{Status: cluster.In, Size: size, Samples: size, Seconds: s, Idle: 4 - s})
		all = append(all, cluster.Delivery{At: s, Took: s, Size: size, Power: c.Nodes[i].Power})
	}
	tracker.Observe(report)
	if tracker.scale != scale || len(tracker.round.work) != nodes/3 {
		t.Fatalf("noise scale %v, %d nodes looked at", tracker.scale, len(tracker.round.work))
	}
	var o cluster.Outcomes
	o.Set(all)
	want := make([][Objectives]float64, len(cluster.Rules))
	Values(want, &o, nodes, float64(c.GlobalBatch), scale, 0.25) // a whole batch in 4 s
	center(want)
	for a, means := range tracker.Means() {
		for k := range 3 { // the nodes' powers differ
			if !near(means[k]+1, want[a][k]+1) {
				t.Errorf("%v, %s: %v, want %v", cluster.Rules[a], ObjectiveNames[k], means[k], want[a][k])
			}
		}
	}
}

// The columns of the round's row by hand.
func TestRoundRowByHand(t *testing.T) {
	c := envtest.Mixed(t, 8)
	tracker := NewTracker(c)
	r := tracker.round
	r.means[0][0], r.means[1][0] = 0.3, -1
	r.newest[0], r.average[0], r.newest[1], r.average[1] = 0.5, 0.2, 7, -7
	r.busy, r.overdue, r.left, r.blocked, r.rate = 0.1, 0.2, 0.3, 0.4, 0.5
	r.rule = cluster.Rule{Quorum: 0.75, Grace: 0.1}
	tracker.scale, tracker.rounds = 2*float64(c.GlobalBatch), 4
	tracker.fleet = fleet{residual: 0.1, absolute: 0.9, jumps: 0.01, deviation: 0.2, excess: 0.25, slow: 0.3, missing: 0.4, predicted: 3}
	row := tracker.RoundRow(nil, [Objectives]float64{0.5, 0.25, 0.15, 0.1})
	first := []float64{0, -0.4 * 5}
	for len(first) < len(cluster.Rules) {
		first = append(first, -0.3*5)
	}
	first = append(first, 1.5, 0.6, 3, -3)
	for i, w := range first {
		if math.Abs(float64(row[i])-w) > 1e-6 {
			t.Errorf("%s: %v, want %v", RoundFeatureNames[i], row[i], w)
		}
	}
	rest := []float64{
		0.2, 0.6, 0.9, 1.2, math.Ln2 / 3, 1.5, 0.5, 0.2,
		0.1, 0.1, math.Log(11) / 4, 0.2, 0.5, 0.6, 0.8,
		math.Log(8)/4 - 0.7, tracker.spread - 1.5, math.Log(5)/3 - 1, 0.5, 0.25, 0.15, 0.1,
	}
	begin := len(cluster.Rules) + 2*len(cluster.Quorums)
	for i, w := range rest {
		if got := row[begin+i]; math.Abs(float64(got)-w) > 1e-6 {
			t.Errorf("%s: %v, want %v", RoundFeatureNames[begin+i], got, w)
		}
	}
}
