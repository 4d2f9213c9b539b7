package planner

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// No plan under another schedule takes less than the bound that a search prints where it may choose one: it may assume no bubble of
// 1F1B, nor that a stage holds the activations that 1F1B holds.
func TestNoScheduleBelowTheBound(t *testing.T) {
	plans, least := map[string]int{}, math.Inf(1)
	for seed := range uint64(160) {
		rng := rand.New(rand.NewPCG(seed, 31))
		j := inventedJob(t, rng, 9, 0)
		if j == nil {
			continue
		}
		batch := 16
		bound := j.model.WorkBound(batch)
		for range 900 {
			p := randomPlan(rng, j, batch)
			if len(p.Stages) < 2 || p.Stages[len(p.Stages)-1].To != len(j.Profile.Layers) {
				continue
			}
			all := []*Plan{p.interleave(2), p.interleave(3)}
			zero := *p
			zero.Schedule = ScheduleZeroBubble
			for _, q := range append(all, &zero) {
				if q == nil || q.Validate(0) != nil {
					continue
				}
				got, _ := j.Predict(q) // those that do not fit have a price
				if got == nil {
					continue
				}
				plans[q.Schedule]++
				least = min(least, got.Seconds/bound, got.Simulated/bound)
			}
		}
	}
	if plans[ScheduleInterleaved] < 1000 || plans[ScheduleZeroBubble] < 3000 || least < 1-1e-9 {
		t.Errorf("%v plans; one takes %v of the bound", plans, least)
	}
	if least > 1.3 {
		t.Errorf("no plan comes nearer than %v: the bound is not tried", least)
	}
}

// What a search finds by all schedules is the quickest of what it finds by each, and holds.
func TestSearchBySchedule(t *testing.T) {
	chosen := map[string]int{}
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 32))
		j := inventedJob(t, rng, 8, 2)
		if j == nil {
			continue
		}
		of := func(schedule string) float64 {
			r, err := j.Search(context.Background(), SearchOptions{Schedule: schedule, Unrefined: true})
			if errors.Is(err, ErrInfeasible) {
				return math.Inf(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			p := r.Plan
			if schedule != ScheduleAny && p.scheduleText() != schedule && !strings.HasPrefix(p.scheduleText(), schedule+" in ") {
				t.Errorf("asked for %s, found %s", schedule, p.scheduleText())
			}
			got, err := j.Predict(p)
			if err != nil || got.Simulated != p.Predicted.Simulated {
				t.Errorf("%s: %v, predicted again", schedule, err)
			}
			if line, err := j.Timeline(p); err != nil || line.Seconds != got.Simulated || len(line.Stages) != p.Pipeline() {
				t.Errorf("%s: %+v, %v; want %v s", schedule, line, err, got.Simulated)
			}
			if schedule != Schedule1F1B && r.LowerBound > j.model.WorkBound(p.GlobalBatch)/float64(p.GlobalBatch)*(1+1e-12) {
				t.Errorf("%s: bound by what 1F1B alone does", schedule)
			}
			if schedule == ScheduleAny {
				chosen[p.Schedule]++
			}
			return p.Predicted.Simulated / float64(p.GlobalBatch)
		}
		each := []float64{of(Schedule1F1B), of(ScheduleInterleaved), of(ScheduleZeroBubble)}
		if any := of(ScheduleAny); any != slices.Min(each) {
			t.Errorf("seed %d: %v by any schedule, %v by each", seed, any, each)
		}
	}
	if len(chosen) < 2 {
		t.Errorf("chosen: %v", chosen)
	}
}

func TestBadSchedules(t *testing.T) {
	group := func(first, count int) []Group {
		return []Group{{Devices{"a", first, count}, 1, slices.Repeat([]int{1}, count)}}
	}
	plan := func(change func(p *Plan)) *Plan {
		p := &Plan{Version: Version, GlobalBatch: 8, MicroBatch: 1, Schedule: ScheduleInterleaved, Chunks: 2}
		for k := range 4 {
			p.Stages = append(p.Stages, Stage{From: k, To: k + 1, Groups: group(k%2, 1), Strategies: []Strategy{{From: k, To: k + 1, Sharding: Replicated}}})
		}
		change(p)
		return p
	}
	if err := plan(func(*Plan) {}).Validate(4); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p *Plan){
		`schedule: is "zb-v"; want 1f1b, interleaved or zb-h1`:                             func(p *Plan) { p.Schedule = "zb-v" },
		"chunks: is 2; only the schedule interleaved has them":                             func(p *Plan) { p.Schedule = "" },
		"chunks: is 3 with 4 stages":                                                       func(p *Plan) { p.Chunks = 3 },
		"chunks: is 4 with 4 stages":                                                       func(p *Plan) { p.Chunks = 4 },
		"chunks: is 1 with 4 stages":                                                       func(p *Plan) { p.Chunks = 1 },
		"schedule: is interleaved with 1 micro-batches; must be a multiple of the 2":       func(p *Plan) { p.GlobalBatch = 1 },
		"stages[2].groups: are not those of stages[0]":                                     func(p *Plan) { p.Stages[2].Groups = group(2, 1) },
		"stages[3].groups: are not those of stages[1]":                                     func(p *Plan) { p.Stages[3].Groups = nil },
		"stages[1].groups[0]: takes a devices 0 to 0, of which some are taken already":     func(p *Plan) { p.Stages[1].Groups, p.Stages[3].Groups = group(0, 1), group(0, 1) },
		"unused[0]: takes a devices 1 to 1, of which some are taken already":               func(p *Plan) { p.Unused = []Devices{{"a", 1, 1}} },
		"schedule: is zb-h1, but there is one stage":                                       func(p *Plan) { p.Schedule, p.Chunks, p.Stages = ScheduleZeroBubble, 0, p.Stages[:1] },
		"schedule: is interleaved for 4 stages and 524288 micro-batches; their product mu": func(p *Plan) { p.GlobalBatch = 1 << 19 },
	} {
		if err := plan(change).Validate(0); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	for _, c := range [][2]string{{"gpipe", ""}, {ScheduleZeroBubble, "megatron"}, {ScheduleInterleaved, "deepspeed"}} {
		if _, err := schedules(c[0], c[1]); !errors.Is(err, ErrSchedule) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
