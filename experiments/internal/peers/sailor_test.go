package peers

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evenkeel/evenkeel/planner/search"
)

// smallSailor is a model of a few layers on two classes.
func smallSailor(r *rand.Rand) *Sailor {
	layers := 2 + r.IntN(3)
	s := &Sailor{Batch: 8, Pool: []int{1 + r.IntN(4), 1 + r.IntN(4)}, memory: map[int][]sailorLayer{}, links: map[[4]int][]float64{}}
	for range layers {
		s.output = append(s.output, 8e6)
		s.weights = append(s.weights, 4e6*(1+9*r.Float64()))
	}
	for _, t := range []int{1, 2} {
		for range layers {
			s.memory[t] = append(s.memory[t], sailorLayer{Params: 1e7 / float64(t), Memory: 1e7})
		}
	}
	for class := range 2 {
		k := sailorClass{memory: 2e9 + 1.5e9 + 2e9*r.Float64(), times: map[int]map[int][][3]float64{}}
		for _, b := range []int{1, 2} {
			k.times[b] = map[int][][3]float64{}
			for _, t := range []int{1, 2} {
				for range layers {
					f := (0.5 + r.Float64()) * float64(b*(class+1)) / float64(t)
					k.times[b][t] = append(k.times[b][t], [3]float64{f, 2 * f, 0.01})
				}
			}
		}
		s.classes = append(s.classes, k)
		for _, t := range []int{1, 2} {
			for other := range 2 {
				for _, u := range []int{1, 2} {
					s.links[[4]int{class, t, other, u}] = []float64{0, 0.1, 5}
				}
			}
		}
	}
	return s
}

// bestSailor tries every plan whose stages are of one class.
func bestSailor(s *Sailor, p SailorPlan, from, replicas int) float64 {
	if from == len(s.output) {
		score, err := s.Score(p)
		if err != nil {
			return math.Inf(1)
		}
		return score
	}
	least := math.Inf(1)
	for to := from + 1; to <= len(s.output); to++ {
		for class := range 2 {
			for _, t := range []int{1, 2} {
				g := SailorStage{from, to, slices.Repeat([]SailorReplica{{class, t}}, replicas)}
				q := SailorPlan{p.MicroBatch, append(slices.Clone(p.Stages), g)}
				least = min(least, bestSailor(s, q, to, replicas))
			}
		}
	}
	return least
}

func TestPlanSailor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		s := smallSailor(r)
		want := math.Inf(1)
		for _, b := range []int{1, 2} {
			for replicas := 1; replicas <= 8; replicas++ {
				want = min(want, bestSailor(s, SailorPlan{MicroBatch: b}, 0, replicas))
			}
		}
		plan, got, err := s.PlanSailor(context.Background())
		if errors.Is(err, search.ErrInfeasible) && math.IsInf(want, 1) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if score, err := s.Score(plan); err != nil || score != got {
			t.Fatalf("%v, said %v, %v", score, got, err)
		}
		// The search counts messages a little differently from the score; they are short here.
		if got < want*(1-1e-9) || got > want*1.01 {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

func TestSailorScore(t *testing.T) {
	s := smallSailor(rand.New(rand.NewPCG(3, 4)))
	s.Pool = []int{4, 4}
	s.classes[0].memory = 1e12
	n := len(s.output)
	one := SailorPlan{1, []SailorStage{{0, n, []SailorReplica{{0, 1}}}}}
	got, err := s.Score(one)
	want := 0.0
	for _, v := range s.classes[0].times[1][1] {
		want += 8 * (v[0] + v[1])
	}
	if want += 0.01; err != nil || math.Abs(got-want) > 1e-9 {
		t.Fatalf("%v, want %v; %v", got, want, err)
	}
	for name, p := range map[string]SailorPlan{
		"layer left out": {1, []SailorStage{{0, n - 1, one.Stages[0].Replicas}}},
		"empty stage":    {1, []SailorStage{{0, 0, one.Stages[0].Replicas}, one.Stages[0]}},
		"unknown degree": {1, []SailorStage{{0, n, []SailorReplica{{0, 3}}}}},
		"too many":       {1, []SailorStage{{0, n, slices.Repeat([]SailorReplica{{0, 2}}, 3)}}},
	} {
		if _, err := s.Score(p); !errors.Is(err, ErrInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
