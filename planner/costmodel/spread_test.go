package costmodel

import (
	"fmt"
	"testing"

	"evenkeel/planner/layerprofile"
	"evenkeel/planner/pipeline"
)

// The tests of this file, too, compare with numbers worked out by hand, from docs/reference/cost-model.md. Bytes are kB, parameters thousands.

// spreadModel is the model by hand with another profile, on 8 or more a.
func spreadModel(t *testing.T, a int, o Options, change func(p *layerprofile.Profile)) *Model {
	t.Helper()
	o.GlobalBatches, o.States = []int{16}, States{2, 3, 12}
	if o.Overlap == (Overlap{}) {
		o.Overlap = noOverlap
	}
	p := handProfile()
	change(p)
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, handTopology(t, "1000000000B", "count: 8", fmt.Sprint("count: ", a)), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// attention is in the second and the third layer: 60 and 120 of keys and values go around, and 0.25 k n s may be done again for 4 k of a
// sample's activation.
func attention(p *layerprofile.Profile) {
	p.Layers[1].Context, p.Layers[2].Context, p.Layers[2].Tied = 60e3, 120e3, 50e3
	for i := range p.Layers {
		for k := range p.Layers[i].Runs {
			if r := &p.Layers[i].Runs[k]; i > 0 && r.Device == "a" && r.Tensor == 1 {
				r.Selective, r.Freed = 0.25*float64((i+1)*r.MicroBatch), 4e3*float64(i+1)
			}
		}
	}
}

// Units of two devices: a has two machines of two units, b two of one.
func TestContext(t *testing.T) {
	units := func(o Options) *Model { return spreadModel(t, 8, o, attention).In(Spread{Context: 2, Experts: 1}) }
	m, plain := units(Options{}), Strategy{Sharding: Replicated}
	two := groupOf(0, 0, 1, 2)
	// Two samples take 6 x 2 / 2, 18 x 2 / 2; the update is whole. Once around takes 1 + 60 x 2 / 2 / 1000 and 1 + 120 x 2 / 2 / 1000, together 2.18, and
	// goes around three times. Both devices have the same weights: 2 (1 + 300/2000 + 1 + 600/2000 + 1 + 1050/2000), as 50 parameters are held once.
	c := priceOf(t, m, 16, 2, on(0, 3, plain, two))
	expect(t, "one unit", c.Stages[0], 6, 18, 0, 6.54, 0, 0, 2*(3+0.15+0.3+0.525), 0.8*(1+2+3*0.875))
	same(t, "forward", c.Timings[0].Forward, 6+2.18)
	same(t, "backward", c.Timings[0].Backward, 18+4.36)
	// Each device has a half of both samples: 10 x 6; 40 + 80 while the second layer runs.
	expectMemory(t, "one unit", c.Stages[0].Memory[0], 17*650, 60, 120)
	// Recomputing, keys and values go around once more. Kept are halves of 2 x (40 + 80); 40 + 80 + 20 while the second layer runs.
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, two))
	expect(t, "recomputing", c.Stages[0], 6, 18, 6, 8.72, 0, 0, 7.95, 4.5)
	expectMemory(t, "recomputing", c.Stages[0].Memory[0], 17*650, 120, 140)
	same(t, "recomputing, forward", c.Timings[0].Forward, 6+2.18)
	// And so they do where attention alone is: 0.25 x 5 x 2 / 2; 10 + 6 x 5 are kept; 40 + 80 + 8.
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Replicated, Selective: true}, two))
	expect(t, "in part", c.Stages[0], 6, 18, 1.25, 8.72, 0, 0, 7.95, 4.5)
	expectMemory(t, "in part", c.Stages[0].Memory[0], 17*650, 40, 128)
	// Two units in a machine share optimizer's state and update by four: three turns of 1 s and a quarter.
	c = priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Optimizer}, groupOf(0, 0, 1, 2, 2)))
	expect(t, "optimizer", c.Stages[0], 6, 18, 0, 6.54, 0, 0, 2*3*(3+1950/4000.0), 4.5/4)
	expectMemory(t, "optimizer", c.Stages[0].Memory[0], (5+3)*650, 60, 120)
	// Weights 200, 400, 700 by halves: 3.65; gradients 3.975. Beside the forward pass 3.65 + 2.18, beside the backward pass 3.65 + 3.975 + 4.36.
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Full}, two))
	expect(t, "full", c.Stages[0], 6, 18, 0, 5.83+11.985, 0, 0, 0, 2.25)
	expectMemory(t, "full", c.Stages[0].Memory[0], 17*325, 60, 80+20+5*350)
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Gradients}, two))
	expect(t, "gradients", c.Stages[0], 6, 18, 0, 2.18+3.975+4.36, 0, 0, 3.65, 2.25)
	// Four units in two machines: within them four devices have the same weights, 3 (1 + X/4000), between them 6 + X/200. X = 300, 600, 1050.
	c = priceOf(t, m, 16, 8, on(0, 3, plain, groupOf(0, 0, 1, 2, 2, 2, 2)))
	same(t, "two machines", c.Stages[0].Sync, 2*(9+3*1950/4000.0+18+1950/200.0))
	// On two devices each, two parts of a sequence: 1 + 120 x 4 / 2 / 2 / 1000.
	c = priceOf(t, m, 16, 4, on(0, 2, plain, groupOf(1, 0, 1, 4)), on(2, 3, plain, groupOf(0, 0, 2, 4)))
	same(t, "tensor degree 2", c.Stages[1].Gather, 3*1.12)

	// Beside 2 and 3 s of the forward pass 1.06 and 1.12 s take 1.2 (1 - 1 / 1.5) of theirs longer, beside the backward pass twice that.
	c = priceOf(t, units(Options{Overlap: Overlap{Compute: 1.5, Communication: 1.2}}), 16, 2, on(0, 3, plain, two))
	same(t, "hidden, forward", c.Timings[0].Forward, 6+0.4*2.18)
	same(t, "hidden", c.Stages[0].Gather, 3*0.4*2.18)
}

// What a unit sends is divided over its devices.
func TestContextSends(t *testing.T) {
	m, plain := spreadModel(t, 8, Options{}, attention).In(Spread{Context: 2, Experts: 1}), Strategy{Sharding: Replicated}
	// In a machine each device sends a half of 2 x 40, and the sum of 150 of gradients is a tied pair's: 2 (1 + 75/1000), beside 2 (1 + 300/2000) of the
	// unit's own.
	c := priceOf(t, m, 16, 2, on(0, 1, plain, groupOf(0, 0, 1, 2)), on(1, 3, plain, groupOf(0, 1, 1, 2)))
	same(t, "in a machine", c.Stages[0].Send, 2*1.04)
	same(t, "tied in a machine", c.Stages[0].Sync, 2.3+2*1.075)
	// Over a machine's link goes all that two units with 2 samples each send; and of both devices of a unit the tied gradients' halves: 2 x 2 x 75.
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 0, 1, 2, 2)), on(1, 3, plain, groupOf(0, 2, 1, 4)))
	same(t, "between machines", c.Stages[0].Send, 2*(6+160/100.0))
	same(t, "tied between machines", c.Stages[0].Sync, 2*3*(1+300/4000.0)+2*(6+300/100.0))
	// Half of a half of 4 x 40 to degree 2, and of 4 x 80 back.
	s := on(0, 3, plain, groupOf(0, 0, 1, 2, 2))
	s.Strategies[1].Tensor = 2
	same(t, "convert", priceOf(t, m, 16, 4, s).Stages[0].Convert, 2*1.04+2*1.08)
}

// The third layer has 8 experts with 240 of its 400 parameters, and 100 of a sample go to them.
func experts(p *layerprofile.Profile) {
	p.Layers[2].Experts, p.Layers[2].ExpertParameters, p.Layers[2].ExpertBytes = 8, 240e3, 100e3
}

// Four replicas in a machine, of which two divide the experts.
func TestExperts(t *testing.T) {
	m := spreadModel(t, 8, Options{}, experts).In(Spread{Context: 1, Experts: 2})
	four := groupOf(0, 0, 1, 1, 1, 1, 1)
	// Half of a sample's 100 go to the other replica: 1.05 s, four times. The third layer updates 160 + 120 of 400. Gradients: three turns for 300, 600
	// and 480 of all, one for a half of 360 of experts' own.
	gradients := 3*(3+1380/4000.0) + 1.18
	c := priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Replicated}, four))
	expect(t, "replicated", c.Stages[0], 6, 18, 0, 4.2, 0, 0, 2*gradients, 2.4+2.4*0.7)
	expectMemory(t, "replicated", c.Stages[0].Memory[0], 17*580, 60, 120)
	same(t, "forward", c.Timings[0].Forward, 6+2.1)
	// Recomputing sends them twice more; recomputing attention alone does not.
	c = priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, four))
	same(t, "recomputing", c.Stages[0].Gather, 6.3)
	same(t, "recomputing, forward", c.Timings[0].Forward, 6+2.1)
	// Of 460 a quarter, of 120 a half; each updates a quarter of all.
	c = priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Optimizer}, four))
	expect(t, "optimizer", c.Stages[0], 6, 18, 0, 4.2, 0, 0, 2*gradients, 1.2)
	expectMemory(t, "optimizer", c.Stages[0].Memory[0], 460*(5+3)+120*(5+6), 60, 120)
	// Weights 200, 400, 320, and 240 of experts. While the third layer runs its own 280 are whole.
	weights := 3*(3+920/4000.0) + 1.12
	c = priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Gradients}, four))
	expect(t, "gradients", c.Stages[0], 6, 18, 0, 4.2+gradients, 0, 0, weights, 1.2)
	expectMemory(t, "gradients", c.Stages[0].Memory[0], 460*(2+15/4.0)+120*(2+15/2.0), 60, 100+3*280)
	c = priceOf(t, m, 16, 4, on(0, 3, Strategy{Sharding: Full}, four))
	expect(t, "full", c.Stages[0], 6, 18, 0, 4.2+2*weights+gradients, 0, 0, 0, 1.2)
	expectMemory(t, "full", c.Stages[0].Memory[0], 17*(460/4+120/2), 60, 100+5*280)
	// Nothing computes while samples are sent: 2.1 s are never hidden.
	o := Overlap{Compute: 1.5, Communication: 1.2}
	c = priceOf(t, spreadModel(t, 8, Options{Overlap: o}, experts).In(Spread{Context: 1, Experts: 2}), 16, 4, on(0, 3, Strategy{Sharding: Replicated}, four))
	same(t, "beside computing", c.Stages[0].Gather, 4.2)
	// Two replicas are one block: their experts have nobody to exchange with.
	c = priceOf(t, m, 16, 4, on(0, 2, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 4)), on(2, 3, Strategy{Sharding: Replicated}, groupOf(0, 1, 1, 2, 2)))
	expect(t, "one block", c.Stages[1], 6, 18, 0, 4*1.1, 0, 0, 2*(1+480/2000.0), 1.68)
}

// Blocks in several machines. A layer's 480 of gradients that all have take 3 (1 + 480/4000) + 6 + 480/200 over two machines of four replicas.
func TestExpertsOverMachines(t *testing.T) {
	third := func(what string, a, degree int, g Group, gather, sync, states float64) {
		t.Helper()
		m := spreadModel(t, a, Options{}, experts).In(Spread{Context: 1, Experts: degree})
		samples := 0
		for _, k := range g.Shares {
			samples += k
		}
		c := priceOf(t, m, 16, samples, on(0, 2, Strategy{Sharding: Replicated}, groupOf(1, 0, 1, Even(samples, 4)...)), on(2, 3, Strategy{Sharding: Replicated}, g))
		same(t, what+", gather", c.Stages[1].Gather, gather)
		same(t, what+", sync", c.Stages[1].Sync, sync)
		same(t, what+", states", c.Stages[1].Memory[0].States/1e3, states)
	}
	eight := groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	rest := 3*(1+480/4000.0) + 6 + 480/200.0
	// Two blocks of two in each machine: two in a machine have the same 360, 1 + 180/1000; both experts' rings pass the link, 6 + 720/200. A ring of four
	// takes 3 (6 + 720/400).
	third("two of a machine", 8, 2, eight, 4*1.05, 2*(rest+1.18+9.6), 17*(160+120))
	// A machine is a block: the link carries the rings of four experts, of 180 each.
	third("a machine", 8, 4, eight, 4*3*1.025, 2*(rest+6+720/200.0), 17*(160+60))
	// Both machines are one. 12.5 for each of the three others in a machine, and 4 x 4 x 12.5 over the link; nobody else has the same.
	third("two machines", 8, 8, eight, 4*(3*1.0125+6+200/100.0), 2*rest, 17*(160+30))
	// Of replicas of two devices, 240 of gradients are the part of one, and the link carries two rings: 1 + 240/2000 + 6 + 480/200. Two replicas with 2
	// samples, a machine, send each other 100 x 2 / 2 / 2 a device; four experts' rings pass the link again, of 180.
	pairs := groupOf(0, 0, 2, 2, 2, 2, 2)
	rest = 1.12 + 8.4
	third("a machine of pairs", 8, 2, pairs, 4*1.05, 2*(rest+9.6), 17*(80+60))
	// One block: 25 to the other pair of the machine, and 4 x 4 / 2 x 25 over the link.
	third("two machines of pairs", 8, 4, pairs, 4*(1.025+6+200/100.0), 2*rest, 17*(80+30))
	// Four machines, two blocks of two machines: in each machine four experts of 90 have one other replica far away, 6 + 360/200. The rest takes
	// 3 (1 + 480/4000) + 3 (6 + 480/400).
	sixteen := groupOf(0, 0, 1, Even(16, 16)...)
	third("four machines", 16, 8, sixteen, 4*(3*1.0125+8), 2*(3*1.12+3*7.2+7.8), 17*(160+30))
}

// Where links within machines are slow, experts are gathered by a ring: 3 (6 + 720/400) beats 100.18 + 9.6; the rest takes 7 (6 + 480/800).
func TestExpertsRing(t *testing.T) {
	p := handProfile()
	experts(p)
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, handTopology(t, "1000000000B", "latency: 1s", "latency: 100s"), Options{Overlap: noOverlap, GlobalBatches: []int{16}, States: States{2, 3, 12}})
	if err != nil {
		t.Fatal(err)
	}
	c := priceOf(t, m.In(Spread{Context: 1, Experts: 2}), 16, 8, on(0, 2, Strategy{Sharding: Replicated}, groupOf(1, 0, 1, 8)), on(2, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)))
	same(t, "ring", c.Stages[1].Sync, 2*(23.4+46.2))
}

// Sequence parallelism keeps 2 k less of a sample on two devices; at degree 1 nothing, whatever the profile says.
func TestSequence(t *testing.T) {
	whole := func(p *layerprofile.Profile) {
		for i := range p.Layers {
			for k := range p.Layers[i].Runs {
				r := &p.Layers[i].Runs[k]
				if r.Sequence = 2e3 * float64(i+1); r.Tensor == 2 {
					r.Selective, r.Freed = 0.1*r.Forward, 1e3*float64(i+1)
				}
			}
		}
	}
	m, plain, pair := spreadModel(t, 8, Options{Sequence: true}, whole), Strategy{Sharding: Replicated}, groupOf(0, 0, 2, 2)
	// (6 - 2) x 6 x 2.
	c := priceOf(t, m, 16, 2, on(0, 3, plain, pair))
	expect(t, "two devices", c.Stages[0], 7.2, 18, 0, 0, 0, 0, 0, 2.4)
	expectMemory(t, "two devices", c.Stages[0].Memory[0], 5950, 48, 240)
	// Half of 2 x (40 + 80); what runs has inputs and outputs whole: 2 (40 + 80 + 8).
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, pair))
	expect(t, "recomputing", c.Stages[0], 7.2, 18, 7.2, 0, 0, 0, 0, 2.4)
	expectMemory(t, "recomputing", c.Stages[0].Memory[0], 5950, 120, 256)
	// (6 - 2 - 1) x 6 x 2, and 2 (40 + 80 + 2).
	c = priceOf(t, m, 16, 2, on(0, 3, Strategy{Sharding: Replicated, Selective: true}, pair))
	expectMemory(t, "in part", c.Stages[0].Memory[0], 5950, 36, 244)
	// Without the option nothing changes, nor at degree 1 with it: 6 x 6 x 2, 2 x 120, 10 x 6 x 2.
	c = priceOf(t, spreadModel(t, 8, Options{}, whole), 16, 2, on(0, 3, Strategy{Sharding: Replicated}, pair))
	expectMemory(t, "off", c.Stages[0].Memory[0], 5950, 72, 240)
	c = priceOf(t, spreadModel(t, 8, Options{}, whole), 16, 2, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, pair))
	expectMemory(t, "off, recomputing", c.Stages[0].Memory[0], 5950, 240, 264)
	c = priceOf(t, m, 16, 2, on(0, 3, plain, groupOf(0, 0, 1, 2)))
	expectMemory(t, "one device", c.Stages[0].Memory[0], 11900, 120, 240)
	// The second layer's own degree counts: 4 samples on both, (6 - 2) x 2 x 4, beside 10 x 4 x 2 of the others.
	s := on(0, 3, plain, groupOf(0, 0, 1, 2, 2))
	s.Strategies[1].Tensor = 2
	same(t, "own degree", priceOf(t, m, 16, 4, s).Stages[0].Memory[0].Activations/1e3, 32+80)
	// Of 3 samples, between one that keeps 2 k less and eight, 1 k less, the smaller counts: (6 - 1) x 6 x 3. Calibrated, both count twice.
	m = spreadModel(t, 8, Options{Sequence: true, Calibration: Calibration{Activations: 2}}, func(p *layerprofile.Profile) {
		whole(p)
		for i := range p.Layers {
			for k := range p.Layers[i].Runs {
				if r := &p.Layers[i].Runs[k]; r.MicroBatch == 8 {
					r.Sequence = 1e3 * float64(i+1)
				}
			}
		}
	})
	same(t, "between", priceOf(t, m, 15, 3, on(0, 3, plain, groupOf(0, 0, 2, 3))).Stages[0].Memory[0].Activations/1e3, 2*90)
	// Until its gradients of weights, ZB-H1 keeps a micro-batch as it is without recomputation, 2 (6 - 2) x 3, while the next keeps half of its 80.
	z, err := m.PriceScheduled(16, 1, []Stage{on(0, 2, Strategy{Sharding: Replicated, Checkpoint: true}, groupOf(0, 0, 2, 1)), on(2, 3, Strategy{Sharding: Replicated, Checkpoint: true}, groupOf(0, 2, 2, 1))}, Passes{Schedule: pipeline.ZeroBubble, Chunks: 1})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "zb-h1", z.Stages[1].Memory[0].Activations/1e3, 24+40)
}

// Eight devices in two machines take 0.2 k n and 0.5 k n seconds, keep 2 k of a sample and update in 0.1 k; in one machine of eight they
// would take 9 times that, which no cluster here has.
func wide(p *layerprofile.Profile) {
	p.Layers[2].Tied = 50e3
	for i := range p.Layers {
		k := float64(i + 1)
		for _, n := range []int{1, 8} {
			x := k * float64(n)
			p.Layers[i].Runs = append(p.Layers[i].Runs,
				layerprofile.Run{Device: "a", Tensor: 8, Machines: 2, MicroBatch: n, Forward: 0.2 * x, Backward: 0.5 * x, Update: 0.1 * k, Activation: 2e3 * k},
				layerprofile.Run{Device: "a", Tensor: 8, MicroBatch: n, Forward: 1.8 * x, Backward: 4.5 * x, Update: 0.9 * k, Activation: 18e3 * k})
		}
	}
}

func TestTensorOverMachines(t *testing.T) {
	m, plain := spreadModel(t, 16, Options{}, wide), Strategy{Sharding: Replicated}
	// 0.2 x 6 x 4, 0.5 x 6 x 4; an eighth of 17 x 650; 2 x 6 x 4; 4 x 120.
	c := priceOf(t, m, 16, 4, on(0, 3, plain, groupOf(0, 0, 8, 4)))
	expect(t, "one replica", c.Stages[0], 4.8, 12, 0, 0, 0, 0, 0, 0.1*(1+2+3*0.875))
	expectMemory(t, "one replica", c.Stages[0].Memory[0], 17*650/8.0, 48, 480)
	// Of two replicas each device has one other, far away; a machine's link carries the rings of its four devices, of an eighth of 300, 600 and 1050.
	c = priceOf(t, m, 16, 8, on(0, 3, plain, groupOf(0, 0, 8, 4, 4)))
	same(t, "two replicas", c.Stages[0].Sync, 2*(18+1950/8.0*4/2/100))
	// A replica of its own beside them: none to exchange with. Half of it lies in a machine, whose four devices send all of 4 x 40 each, and half of 150/2 of tied gradients.
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 0, 8, 4)), on(1, 3, plain, groupOf(0, 8, 8, 4)))
	expect(t, "two stages", c.Stages[0], 0.8, 2, 0, 0, 0, 2*(6+4*160/100.0), 2*(6+37.5/100), 0.1)
	same(t, "last stage", c.Stages[1].Sync, 2*(6+37.5/100))
	// All 8 samples of the second layer on 8 devices that take one each of the others: seven eighths of 8 x 40 and of 8 x 80 pass between machines.
	s := on(0, 3, plain, groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1))
	s.Strategies[1].Tensor = 8
	c = priceOf(t, m, 16, 8, s)
	same(t, "convert", c.Stages[0].Convert, 2*(6+280/100.0)+2*(6+560/100.0))
	same(t, "own degree, forward", c.Stages[0].Forward, 1+0.2*2*8+3)
	// The others' gradients of 300 and 1050 take 3 (1 + X/4000) + 6 + X/200.
	same(t, "own degree, sync", c.Stages[0].Sync, 2*(6+3*1350/4000.0+12+1350/200.0))
}

// Of the measurements of a, with machines of four, those within a machine and over whole machines are planned, not those over halves of two,
// and with contexts only what is within one with as many devices each.
func TestTensorDegrees(t *testing.T) {
	m := spreadModel(t, 16, Options{}, func(p *layerprofile.Profile) {
		attention(p)
		for i := range p.Layers {
			for _, d := range []layerprofile.Degree{{Tensor: 4, Machines: 1}, {Tensor: 4, Machines: 2}, {Tensor: 6, Machines: 2}, {Tensor: 8, Machines: 1}, {Tensor: 12, Machines: 3}, {Tensor: 16, Machines: 4}, {Tensor: 32, Machines: 8}} {
				p.Layers[i].Runs = append(p.Layers[i].Runs, layerprofile.Run{Device: "a", Tensor: d.Tensor, Machines: d.Machines, MicroBatch: 1, Forward: float64(d.Machines), Backward: 1})
			}
		}
	})
	for context, want := range map[int]string{1: "[1 2 4 12 16]", 2: "[1 2]", 4: "[1]"} {
		if got := fmt.Sprint(m.In(Spread{Context: context, Experts: 1}).TensorsOf(0)); got != want {
			t.Errorf("context %d: tensor degrees %s, want %s", context, got, want)
		}
	}
	if got := fmt.Sprint(m.Wides(0), m.MeasuredTensors(0, 0)); got != "[12 16] [1 2 4 12 16 32]" {
		t.Errorf("degrees over machines, and all, are %s", got)
	}
	if r, ok := m.Curve(0, 0, 4).At(1); !ok || r.Forward != 1 {
		t.Errorf("4 devices of a machine take the time of %+v", r)
	}
	if _, ok := m.In(Spread{Context: 2, Experts: 1}).degree(0, 4); ok {
		t.Error("a tensor degree of 4 with context 2 lies in a machine of 4")
	}
}
