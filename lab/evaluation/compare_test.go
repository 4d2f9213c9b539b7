package evaluation

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"evenkeel/agent"
	"evenkeel/agent/baseline"
	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/env"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/stats"
)

// scenario is a preset under its name.
func scenario(t testing.TB, name string) Scenario {
	t.Helper()
	return Scenario{Name: name, Conditions: agenttest.Conditions(t, name)}
}

// twoCases is a small comparison on two clusters.
func twoCases(t testing.TB, names ...string) Config {
	t.Helper()
	policies, err := Find(names)
	if err != nil {
		t.Fatal(err)
	}
	all := sites(t)
	return Config{
		Cases: []Case{{"two", all[0].seen, agenttest.Speed}, {"mixed", all[1].seen, agenttest.Speed}}, Scenarios: []Scenario{scenario(t, "drift"), scenario(t, "interference")},
		Policies: policies, Trained: embedded(t), Seeds: 3, TuneSeeds: 2, Rounds: 30,
	}
}

func TestCompare(t *testing.T) {
	config := twoCases(t, "ddqn", "uniform", "lbbsp", "oracle")
	last := 0
	config.Progressed = func(done, total int) {
		if done != last+1 || done > total {
			t.Errorf("run %d of %d after %d", done, total, last)
		}
		last = done
	}
	lines, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	// Per case and scenario: the two oracles, once, and three policies on 3 seeds, 7 gains on 2.
	if want := 2 * 2 * (5*3 + 7*2); last != want {
		t.Errorf("told of %d runs, want %d", last, want)
	}
	if len(lines) != 2*2*4+2*4 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, r := range lines {
		if r.Policy != config.Policies[i%4].Name || r.Seeds != 3 || r.Rounds != 30 {
			t.Errorf("line %d: %+v", i, r)
		}
		checkResult(t, r)
	}
	for k, pooled := range lines[16:] {
		checkPooled(t, pooled, lines[k], lines[8+k])
	}
	// The lines do not depend on the number of processors.
	config.Progressed = nil
	again, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines, again, cmpopts.IgnoreUnexported(Result{})); diff != "" {
		t.Errorf("a second comparison differs: %s", diff)
	}
}

// checkResult holds a result of TestCompare to what must be true of its policy.
func checkResult(t *testing.T, r Result) {
	t.Helper()
	if !(r.Low <= r.Progress && r.Progress <= r.High) || r.Waiting < 0 || r.Waiting > 1 || r.Freshness != 1 {
		t.Errorf("%+v", r)
	}
	if r.Policy == "oracle" && (r.Progress != 1 || r.Low != 1 || r.High != 1 || !r.Bound) {
		t.Errorf("the state oracle over itself: %+v", r)
	}
	if r.Policy == "ddqn" && r.Gain != (stats.Interval{}) {
		t.Errorf("the first policy's gain over itself: %+v", r.Gain)
	}
	if tuned := r.Knobs != ""; tuned != (r.Policy == "lbbsp" && r.Cluster != "all") {
		t.Errorf("%s: hyperparameters %q", r.Policy, r.Knobs)
	}
}

// checkPooled holds a result over all cases to the mean of those of the two cases.
func checkPooled(t *testing.T, pooled, a, b Result) {
	t.Helper()
	if pooled.Cluster != "all" || pooled.Scenario != a.Scenario || pooled.Nodes != a.Nodes+b.Nodes {
		t.Errorf("pooled %+v of %+v and %+v", pooled, a, b)
	}
	if math.Abs(pooled.Progress-(a.Progress+b.Progress)/2) > 1e-12 || math.Abs(pooled.Gain.Mean-(a.Gain.Mean+b.Gain.Mean)/2) > 1e-12 || math.Abs(pooled.Waiting-(a.Waiting+b.Waiting)/2) > 1e-12 {
		t.Errorf("pooled %+v of %+v and %+v", pooled, a, b)
	}
}

// The same policy twice faces the same clusters, seed by seed.
func TestComparisonIsPaired(t *testing.T) {
	config := twoCases(t, "waterfill", "uniform")
	config.Policies = append(config.Policies, config.Policies[0])
	lines, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lines {
		if same := r.Policy == "waterfill"; same != (r.Gain == stats.Interval{}) {
			t.Errorf("%s on %s: gain %+v", r.Policy, r.Cluster, r.Gain)
		}
	}
}

// spy records the first true slowdown that each of its runs starts from, which tells
// the seed.
type spy struct {
	mu   sync.Mutex
	seen map[int][]float64 // by point
}

func (s *spy) spec() Spec {
	return Spec{Name: "spy", About: "a test's", Hyperparameters: []Hyperparameter{{Values: []string{"even", "better"}}},
		create: func(c *cluster.Cluster, simulator *sim.Simulator, _ *agent.Trained, _ [env.Objectives]float64, point int) agent.Policy {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen[point] = append(s.seen[point], simulator.Truth().Slowdown[0])
			if point == 1 {
				return baseline.NewOracle(c, simulator, baseline.Oracle{})
			}
			return baseline.NewUniform(c)
		}}
}

func TestTuningSeedsAreNotJudgingSeeds(t *testing.T) {
	s := spy{seen: map[int][]float64{}}
	config := twoCases(t)
	config.Cases, config.Scenarios, config.Policies = config.Cases[1:], config.Scenarios[:1], []Spec{s.spec()}
	config.Seeds, config.TuneSeeds = 4, 3
	lines, err := Compare(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	if lines[0].Knobs != "better" {
		t.Errorf("tuned to %q", lines[0].Knobs)
	}
	var judged, tuned []float64
	for seed := range uint64(4) {
		judged = append(judged, sim.New(config.Cases[0].Cluster, config.Scenarios[0].Conditions, seed).Truth().Slowdown[0])
	}
	// Both points saw the tuning seeds, the chosen one the judging seeds as well.
	tuned = s.seen[0]
	chosen := slices.Concat(tuned, judged)
	slices.Sort(chosen)
	slices.Sort(s.seen[1])
	if len(tuned) != 3 || !slices.Equal(chosen, s.seen[1]) {
		t.Errorf("the points saw %v and %v, judged are %v", tuned, s.seen[1], judged)
	}
	for _, v := range tuned {
		if slices.Contains(judged, v) {
			t.Errorf("a point was tuned on a judging seed")
		}
	}
	point, err := Tune(context.Background(), config, config.Cases[0], config.Scenarios[0], &config.Policies[0])
	if err != nil || point != 1 {
		t.Errorf("Tune: %d, %v", point, err)
	}
}

func TestCompareStopsWhenCancelled(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	config := twoCases(t, "uniform", "waterfill-margin", "model")
	config.Seeds, config.Rounds = 40, 200
	ctx, cancel := context.WithCancel(context.Background())
	runs := 0
	config.Progressed = func(done, total int) {
		if runs = done; done == 3 {
			cancel()
		}
	}
	lines, err := Compare(ctx, config)
	if !errors.Is(err, context.Canceled) || lines != nil {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if runs > 3+64 { // one that each processor had under way
		t.Errorf("%d runs were finished after the cancelling", runs-3)
	}
}

// The error that stopped the others is reported, not that they were stopped.
func TestCompareReportsTheCause(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	config := twoCases(t, "uniform")
	config.Seeds = 20
	config.Policies[0].create = func(*cluster.Cluster, *sim.Simulator, *agent.Trained, [env.Objectives]float64, int) agent.Policy {
		return broken{}
	}
	if _, err := Compare(context.Background(), config); !errors.Is(err, errBroken) {
		t.Errorf("%v, want %v", err, errBroken)
	}
}

func TestBootstrapCovers(t *testing.T) {
	// 300 samples of 30 normal numbers around 5: the interval holds 5 about 94 times of
	// 100, as a percentile bootstrap of 30 does.
	rng, covered := rand.New(rand.NewPCG(1, 2)), 0
	for range 300 {
		values := make([]float64, 30)
		for i := range values {
			values[i] = 5 + rng.NormFloat64()
		}
		i := stats.Bootstrap([][]float64{values})
		if covered == 0 && i != stats.Bootstrap([][]float64{values}) {
			t.Fatal("the same values give another interval")
		}
		if i.Low <= 5 && 5 <= i.High {
			covered++
		}
		if width := i.High - i.Low; width < 0.4 || width > 1.1 { // 2*1.96/sqrt(30) = 0.72
			t.Fatalf("interval of width %v", width)
		}
	}
	if covered < 270 || covered > 297 {
		t.Errorf("the interval covers %d times of 300", covered)
	}
}

func TestBootstrapOfStrata(t *testing.T) {
	// Differences between strata are not uncertainty: each stratum is resampled by itself and
	// counts the same, however many values it has.
	i := stats.Bootstrap([][]float64{{1, 1, 1, 1}, {3, 3}})
	if i != (stats.Interval{Mean: 2, Low: 2, High: 2}) {
		t.Errorf("%+v", i)
	}
	if i := stats.Bootstrap([][]float64{{7}}); i != (stats.Interval{Mean: 7, Low: 7, High: 7}) {
		t.Errorf("one value: %+v", i)
	}
}
