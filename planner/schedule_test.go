package planner

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/bound"
	"evenkeel/planner/layerprofile"
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
		limit := bound.Work(j.model, batch)
		for range 900 {
			p := randomPlan(rng, j, batch)
			if len(p.Stages) < 2 || p.Stages[len(p.Stages)-1].To != len(j.Profile.Layers) {
				continue
			}
			all := []*Plan{p.interleave(2), p.interleave(3)}
			zero := *p
			zero.Schedule = ScheduleZeroBubble
			if rng.IntN(2) == 0 {
				zero.Transfers = TransfersOverlap
			}
			ahead := *p
			ahead.Schedule = ScheduleAhead
			for i := range p.Stages {
				ahead.Warmup = append(ahead.Warmup, min(p.MicroBatches(), len(p.Stages)-i+(i*len(p.Stages))%2+rng.IntN(2)))
			}
			slices.Sort(ahead.Warmup)
			slices.Reverse(ahead.Warmup)
			for _, q := range append(all, &zero, &ahead) {
				if q == nil || q.Validate(0) != nil {
					continue
				}
				got, _ := j.Predict(q) // those that do not fit have a price
				if got == nil {
					continue
				}
				plans[q.Schedule]++
				least = min(least, got.Seconds/limit, got.Simulated/limit)
			}
		}
	}
	if plans[ScheduleInterleaved] < 1000 || plans[ScheduleZeroBubble] < 3000 || plans[ScheduleAhead] < 3000 || least < 1-1e-9 {
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
			r, err := j.Search(context.Background(), SearchOptions{Schedule: schedule, Unrefined: true, Bound: true})
			if errors.Is(err, ErrInfeasible) {
				return math.Inf(1)
			}
			if err != nil {
				t.Fatal(err)
			}
			p := r.Plan
			if schedule != ScheduleAny && p.Schedule != schedule && (p.Schedule != "" || schedule != Schedule1F1B) {
				t.Errorf("asked for %s, found %s", schedule, p.Schedule)
			}
			if overlaps := p.Schedule == ScheduleInterleaved || p.Schedule == ScheduleZeroBubble; overlaps != (p.Transfers == TransfersOverlap) {
				t.Errorf("%s: found transfers %q; trainers compute while they send", schedule, p.Transfers)
			}
			got, err := j.Predict(p)
			if err != nil || got.Simulated != p.Predicted.Simulated {
				t.Errorf("%s: %v, predicted again", schedule, err)
			}
			if line, err := j.Timeline(p); err != nil || line.Seconds != got.Simulated || len(line.Stages) != p.Pipeline() {
				t.Errorf("%s: %+v, %v; want %v s", schedule, line, err, got.Simulated)
			}
			if r.ByWork == (schedule == Schedule1F1B) || r.ByWork && r.LowerBound > bound.Work(j.model, p.GlobalBatch)/float64(p.GlobalBatch)*(1+1e-12) {
				t.Errorf("%s: bound by what 1F1B alone does", schedule)
			}
			if schedule == ScheduleAny {
				chosen[p.Schedule]++
			}
			return p.Predicted.Simulated / float64(p.GlobalBatch)
		}
		each := []float64{of(Schedule1F1B), of(ScheduleInterleaved), of(ScheduleZeroBubble), of(ScheduleAhead)}
		if any := of(ScheduleAny); any != slices.Min(each) {
			t.Errorf("seed %d: %v by any schedule, %v by each", seed, any, each)
		}
	}
	if len(chosen) < 2 {
		t.Errorf("chosen: %v", chosen)
	}
}

// Eight layers of 3 s on four devices, one a machine; an output takes 4 s each way. If transfers block, the stages in between are short: 3, 1, 1, 3
// layers; beside transfers 2 each, 16 x 6 + 18 + 24 s.
func TestSearchBesideTransfers(t *testing.T) {
	p := &layerprofile.Profile{Model: "even"}
	for range 8 {
		p.Layers = append(p.Layers, layerprofile.Layer{Output: 4e6, Runs: []layerprofile.Run{{Device: "a", Tensor: 1, MicroBatch: 1, Forward: 1, Backward: 2}}})
	}
	if err := p.Finish("even"); err != nil {
		t.Fatal(err)
	}
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes:\n  - {device: a, count: 4, per_machine: 1, memory: 1GB, link: 1MB/s}\n"), "even", nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJob(p, top, Options{GlobalBatches: []int{16}, Replicas: []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.Search(context.Background(), SearchOptions{Schedule: ScheduleAhead})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Plan.Predicted.Simulated; len(r.Plan.Stages) != 4 || math.Abs(got-(16*6+18+24)) > 1e-9 {
		t.Errorf("%v s: %v", got, r.Plan)
	}
}

// No plan that a search sends ahead is quicker with one more micro-batch ahead in a stage, and in those before it as far as they need it.
func TestSentAheadIsEnough(t *testing.T) {
	plans, more := 0, 0
	for seed := range uint64(60) {
		j := inventedJob(t, rand.New(rand.NewPCG(seed, 34)), 8, 0)
		if j == nil {
			continue
		}
		j.options.LeastStages = 2
		j, err := NewJob(j.Profile, j.topology, j.options)
		if err != nil {
			t.Fatal(err)
		}
		r, err := j.Search(context.Background(), SearchOptions{Schedule: ScheduleAhead, Unrefined: true})
		if errors.Is(err, ErrInfeasible) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range append(r.Others, r.Plan) {
			plans++
			if p.Warmup[0] > len(p.Stages) {
				more++
			}
			for i := range p.Warmup {
				q := *p
				q.Warmup = slices.Clone(p.Warmup)
				for k := range i + 1 {
					q.Warmup[k] = max(q.Warmup[k], p.Warmup[i]+1)
				}
				if q.Validate(0) != nil {
					continue
				}
				if got, err := j.Predict(&q); err == nil && got.Simulated < p.Predicted.Simulated*(1-1e-9) {
					t.Errorf("seed %d: %v takes %v s, %v only %v s", seed, p.Warmup, p.Predicted.Simulated, q.Warmup, got.Simulated)
				}
			}
		}
	}
	if plans < 100 || more < 20 {
		t.Errorf("%d plans, %d of them with more ahead than by 1F1B: the test sees too little", plans, more)
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
		`schedule: is "zb-v"; want 1f1b, interleaved, zb-h1, h-1f1b, or leave`:             func(p *Plan) { p.Schedule = "zb-v" },
		"chunks: is 2; only the schedule interleaved has them":                             func(p *Plan) { p.Schedule = "" },
		"warmup: is [2 1]; only the schedule h-1f1b has it":                                func(p *Plan) { p.Warmup = []int{2, 1} },
		"warmup: has 2 entries for 4 stages":                                               func(p *Plan) { p.sendAheadOn4(2, 1) },
		"warmup[2]: is 3; must lie in 1 to the 8 micro-batches, and not above that of":     func(p *Plan) { p.sendAheadOn4(2, 2, 3, 1) },
		"warmup[0]: is 9; must lie in 1 to the 8":                                          func(p *Plan) { p.sendAheadOn4(9, 2, 2, 1) },
		"warmup[3]: is 0; must lie in 1 to the 8":                                          func(p *Plan) { p.sendAheadOn4(3, 2, 2, 0) },
		`transfers: is "overlap" by h-1f1b; interleaved and zb-h1 may`:                     func(p *Plan) { p.sendAheadOn4(3, 2, 2, 1); p.Transfers = TransfersOverlap },
		`transfers: is "overlap" by 1f1b;`:                                                 func(p *Plan) { p.Schedule, p.Chunks, p.Transfers = "", 0, TransfersOverlap },
		`transfers: is "apart" by interleaved;`:                                            func(p *Plan) { p.Transfers = "apart" },
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
	for _, c := range [][2]string{{"gpipe", ""}, {ScheduleZeroBubble, "megatron"}, {ScheduleAhead, "megatron"}, {ScheduleAhead, "deepspeed"}, {ScheduleInterleaved, "deepspeed"}} {
		if _, err := schedules(c[0], c[1]); !errors.Is(err, ErrSchedule) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// sendAheadOn4 makes a plan of four stages one by H-1F1B.
func (p *Plan) sendAheadOn4(warmup ...int) {
	p.Schedule, p.Chunks, p.Warmup = ScheduleAhead, 0, warmup
}
