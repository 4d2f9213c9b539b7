package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
)

func frontJob(t *testing.T) *Job {
	t.Helper()
	p, err := layerprofile.Read(strings.NewReader("layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes\n0,1,1,fast,1,1,1,1\n0,1,1,slow,1,1,2,1\n"), "m.csv")
	if err != nil {
		t.Fatal(err)
	}
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes: [{device: fast, count: 2, memory: 1GiB, link: 1GB/s}, {device: slow, count: 4, memory: 1GiB, link: 1GB/s}]"), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJob(p, top, Options{GlobalBatches: []int{4}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A sample takes 3 s on fast and 6 s on slow; there are four. By hand: 2 fast take 6 s, and 4 slow as long; 1 fast takes 12 s, as do 2
// slow; 1 slow takes 24 s. One of each on a sample makes no iteration shorter than 6 s. Each kind costs the same however many there are.
func TestFrontByHand(t *testing.T) {
	j := frontJob(t)
	for _, c := range []struct {
		fast, slow float64
		want       string // device of the one plan
		seconds    float64
		price      float64
	}{
		{3600, 1000, "slow", 6, 4 * 6 * 1000. / 3600},
		{3600, 7200, "fast", 6, 2 * 6},
	} {
		got, err := j.Front(context.Background(), map[string]float64{"fast": c.fast, "slow": c.slow}, SearchOptions{}, nil, func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range got {
			g := p.Plan.Stages[0].Groups[0]
			found = found || g.Device == c.want && math.Abs(p.Price/c.price-1) < 1e-6 && math.Abs(p.Plan.Predicted.Simulated/c.seconds-1) < 1e-6
		}
		if !found || got[len(got)-1].Price < c.price*(1-1e-6) {
			t.Errorf("%+v: not among %d plans, of which the last costs %v", c, len(got), got[len(got)-1].Price)
		}
	}
}

// Every plan of a front is one of the cluster and its price is that of the devices that it uses; none is dominated, and the search's own
// plan is not beaten in both.
func TestFront(t *testing.T) {
	fronts, longest := 0, 0
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 31))
		j := inventedJob(t, rng, 4, 0)
		if j == nil {
			continue
		}
		prices := map[string]float64{}
		for _, d := range j.devices {
			prices[d] = 0.1 + 10*rng.Float64()
		}
		r, err := j.Search(context.Background(), SearchOptions{Unrefined: true})
		if err != nil {
			continue
		}
		var parts int
		got, err := j.Front(context.Background(), prices, SearchOptions{}, r.Plan, func(_, n int) { parts = n })
		if err != nil {
			t.Fatal(err)
		}
		fronts++
		longest = max(longest, len(got))
		if parts < 1 || got[0].Plan.Predicted.Simulated > r.Plan.Predicted.Simulated*(1+1e-9) {
			t.Errorf("seed %d: the quickest of the front takes %v, the search's %v", seed, got[0].Plan.Predicted.Simulated, r.Plan.Predicted.Simulated)
		}
		for i, p := range got {
			whole, err := j.Predict(p.Plan)
			if err != nil || math.Abs(whole.Simulated/p.Plan.Predicted.Simulated-1) > 1e-9 {
				t.Errorf("seed %d: %v: %v s on the whole cluster, %v s", seed, err, whole, p.Plan.Predicted.Simulated)
			}
			used, unused := map[string]int{}, map[string]int{}
			for _, s := range p.Plan.Stages {
				for _, g := range s.Groups {
					used[g.Device] += g.Count
				}
			}
			for _, d := range p.Plan.Unused {
				unused[d.Device] += d.Count
			}
			price := 0.0
			for k, d := range j.devices {
				price += prices[d] * float64(used[d]) * p.Plan.Predicted.Simulated / 3600
				if used[d]+unused[d] != j.classes[k].Count {
					t.Errorf("seed %d: %d of %s used, %d unused, of %d", seed, used[d], d, unused[d], j.classes[k].Count)
				}
			}
			if math.Abs(price/p.Price-1) > 1e-9 {
				t.Errorf("seed %d: price %v, want %v", seed, p.Price, price)
			}
			if i > 0 && (p.Plan.Predicted.Simulated/float64(p.Plan.GlobalBatch) <= got[i-1].Plan.Predicted.Simulated/float64(got[i-1].Plan.GlobalBatch) || p.Price >= got[i-1].Price) {
				t.Errorf("seed %d: plan %d is dominated, or out of order", seed, i)
			}
		}
	}
	if fronts < 15 || longest < 2 {
		t.Errorf("%d fronts, of up to %d plans: the test sees too little", fronts, longest)
	}
}

// Plans of a front are for the trainer that the search is for: one tensor degree, number of replicas, share, sharding and recomputation,
// which are not what all searches find.
func TestFrontForTrainer(t *testing.T) {
	uneven := 0
	for seed := range uint64(25) {
		j := inventedJob(t, rand.New(rand.NewPCG(seed, 31)), 4, 0)
		if j == nil {
			continue
		}
		prices := map[string]float64{}
		for _, d := range j.devices {
			prices[d] = 1
		}
		count := func(trainer string) (n int) {
			got, err := j.Front(context.Background(), prices, SearchOptions{For: trainer}, nil, func(int, int) {})
			if err != nil && !errors.Is(err, ErrInfeasible) {
				t.Fatal(err)
			}
			for _, p := range got {
				one := map[string]bool{}
				for _, s := range p.Plan.Stages {
					replicas := 0
					for _, g := range s.Groups {
						replicas += len(g.MicroBatches)
						one[fmt.Sprint("tensor ", g.Tensor)] = true
						for _, b := range g.MicroBatches {
							one[fmt.Sprint("share ", b)] = true
						}
					}
					one[fmt.Sprint("replicas ", replicas)] = true
					for _, y := range s.Strategies {
						one[fmt.Sprint("sharding ", y.Sharding)], one[fmt.Sprint("recomputed ", y.Checkpoint)] = true, true
						if y.Tensor > 0 {
							one[fmt.Sprint("tensor ", y.Tensor)] = true
						}
					}
				}
				if len(one) > 5 {
					n++
				}
			}
			return n
		}
		if n := count("megatron"); n > 0 {
			t.Errorf("seed %d: %d plans that Megatron-LM cannot run", seed, n)
		}
		uneven += count("")
	}
	if uneven < 3 {
		t.Errorf("%d plans that Megatron-LM cannot run without the restriction: the test sees too little", uneven)
	}
}

// And they run by the schedule that is asked for: a layer alone makes no pipeline, so none does.
func TestFrontBySchedule(t *testing.T) {
	got, err := frontJob(t).Front(context.Background(), map[string]float64{"fast": 3600, "slow": 1000}, SearchOptions{Schedule: ScheduleZeroBubble}, nil, func(int, int) {})
	if !errors.Is(err, ErrInfeasible) {
		t.Errorf("%d plans, %v", len(got), err)
	}
}

// Parts of the cluster that cannot have the tensor degree that is asked for, as slow was not measured so, have no plan.
func TestFrontOfATensorDegree(t *testing.T) {
	p, err := layerprofile.Read(strings.NewReader("layer,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,activation_bytes\n0,1,1,fast,2,1,1,1\n0,1,1,slow,1,1,2,1\n"), "m.csv")
	if err != nil {
		t.Fatal(err)
	}
	top, err := clusterfile.ReadTopology(strings.NewReader("nodes: [{device: fast, count: 2, per_machine: 2, memory: 1GiB, link: 1GB/s}, {device: slow, count: 4, memory: 1GiB, link: 1GB/s}]"), "t", nil)
	if err != nil {
		t.Fatal(err)
	}
	j, err := NewJob(p, top, Options{GlobalBatches: []int{4}, Tensors: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := j.Front(context.Background(), map[string]float64{"fast": 1, "slow": 1}, SearchOptions{}, nil, func(int, int) {})
	if err != nil || len(got) != 1 || got[0].Plan.Stages[0].Groups[0].Device != "fast" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadPrices(t *testing.T) {
	j := frontJob(t)
	for want, prices := range map[string]map[string]float64{
		"price 0 of slow": {"fast": 1, "slow": 0}, "price NaN of fast": {"fast": math.NaN(), "slow": 1}, "no price of slow": {"fast": 1}, "a price of other": {"fast": 1, "slow": 1, "other": 1},
		"price -1 of fast": {"fast": -1, "slow": 1}, "price 1e+308 of fast": {"fast": 1e308, "slow": 1},
	} {
		if _, err := j.Front(context.Background(), prices, SearchOptions{}, nil, nil); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := j.Front(ctx, map[string]float64{"fast": 1, "slow": 1}, SearchOptions{}, nil, func(int, int) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
