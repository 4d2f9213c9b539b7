package costmodel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
)

// The tests of this file compare the cost model with numbers that were computed by hand from the rules in the guide and in
// decision 10. They share no code with it.
//
// The model has three layers. Layer k = 1, 2, 3 takes, for n samples:
//
//	device  tensor  forward  backward  update  activation of a sample
//	a       1       k n      3 k n     0.8 k   10 k kB
//	a       2       0.6 k n  1.5 k n   0.4 k   6 k kB
//	b       1       1.5 k n  4 k n     0.6 k   12 k kB   (the cluster's b is twice as slow)
//
// Parameters are 100, 200, 400 thousand; outputs 40, 80, 20 kB. Machines: 2 of 4 a, 2 of 2 b. Links within machines of a:
// 1 s and 1000 kB/s, of b: 2 s and 500 kB/s; between machines each end costs 3 s (a) or 5 s (b), at 100 kB/s or 50 kB/s.
// Parameters are held with 2 bytes of weights, 3 of gradients and 12 of optimizer state. Sums over all layers: k 6,
// parameters 700 thousand. Below, bytes are kB, and parameters thousands.
func handProfile() *layerprofile.Profile {
	p := &layerprofile.Profile{Model: "hand"}
	for i := range 3 {
		k := float64(i + 1)
		l := layerprofile.Layer{Name: fmt.Sprint("layer", i), Parameters: []float64{100e3, 200e3, 400e3}[i], Output: []float64{40e3, 80e3, 20e3}[i]}
		for _, n := range []int{1, 8} {
			x := k * float64(n)
			l.Runs = append(l.Runs,
				layerprofile.Run{Device: "a", Tensor: 1, MicroBatch: n, Forward: x, Backward: 3 * x, Update: 0.8 * k, Activation: 1e3 * 10 * k},
				layerprofile.Run{Device: "a", Tensor: 2, MicroBatch: n, Forward: 0.6 * x, Backward: 1.5 * x, Update: 0.4 * k, Activation: 1e3 * 6 * k},
				layerprofile.Run{Device: "b", Tensor: 1, MicroBatch: n, Forward: 1.5 * x, Backward: 4 * x, Update: 0.6 * k, Activation: 1e3 * 12 * k})
		}
		p.Layers = append(p.Layers, l)
	}
	return p
}

func handTopology(t *testing.T, memory string, change ...string) *cluster.Topology {
	t.Helper()
	top, err := clusterfile.ReadTopology(strings.NewReader(strings.NewReplacer(append(change, "MEMORY", memory)...).Replace(`nodes:
  - {device: a, count: 8, per_machine: 4, memory: MEMORY, inside: {bandwidth: 1MB/s, latency: 1s}, link: {bandwidth: 100000B/s, latency: 3s}}
  - {device: b, count: 4, per_machine: 2, memory: MEMORY, slowdown: 2, inside: {bandwidth: 500000B/s, latency: 2s}, link: {bandwidth: 50000B/s, latency: 5s}}
`)), "hand", nil)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func handModel(t *testing.T, o Options) *Model {
	t.Helper()
	return handModelOn(t, handTopology(t, "1000000000B"), o)
}

func handModelOn(t *testing.T, top *cluster.Topology, o Options) *Model {
	t.Helper()
	if o.GlobalBatches == nil {
		o.GlobalBatches = []int{8}
	}
	if o.States == (States{}) {
		o.States = States{2, 3, 12}
	}
	p := handProfile()
	if err := p.Finish("hand"); err != nil {
		t.Fatal(err)
	}
	m, err := New(p, top, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var noOverlap = Overlap{Off: true}

// on is a stage of some layers, all of one strategy.
func on(from, to int, y Strategy, groups ...Group) Stage {
	return Stage{From: from, To: to, Groups: groups, Strategies: slices.Repeat([]Strategy{y}, to-from)}
}

func groupOf(class, first, tensor int, shares ...int) Group {
	return Group{Class: class, First: first, Replicas: len(shares), Tensor: tensor, Shares: shares}
}

func priceOf(t *testing.T, m *Model, global, micro int, stages ...Stage) *Cost {
	t.Helper()
	c, err := m.Price(global, micro, stages)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func same(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, by hand %v", what, got, want)
	}
}

// expect compares all terms of a stage: forward, backward, recompute, gather, convert, send, sync, update.
func expect(t *testing.T, what string, c StageCost, want ...float64) {
	t.Helper()
	for i, got := range []float64{c.Forward, c.Backward, c.Recompute, c.Gather, c.Convert, c.Send, c.Sync, c.Update} {
		same(t, what+" "+[]string{"forward", "backward", "recompute", "gather", "convert", "send", "sync", "update"}[i], got, want[i])
	}
	same(t, what+" step", c.Step(), want[0]+want[1]+want[2]+want[3]+want[4])
}

func expectMemory(t *testing.T, what string, u Usage, states, activations, working float64) {
	t.Helper()
	same(t, what+" states", u.States/1e3, states)
	same(t, what+" activations", u.Activations/1e3, activations)
	same(t, what+" working", u.Working/1e3, working)
	same(t, what+" peak", u.Peak()/1e3, states+activations+working)
}

func TestOneDevice(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap, Reserve: 7e3, Memory: 0.5})
	// Two samples: forward 6 x 2, backward 3 x 12, update 0.8 x 6. Three micro-batches: (48 + 2 x 48) + 4.8.
	c := priceOf(t, m, 6, 2, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 2)))
	expect(t, "one device", c.Stages[0], 12, 36, 0, 0, 0, 0, 0, 4.8)
	same(t, "iteration", c.Seconds, 148.8)
	// 17 x 700; activations 2 x 10 x 6; the fullest layer is the second, with 40 in and 80 out of each sample, and 7
	// reserved.
	expectMemory(t, "one device", c.Stages[0].Memory[0], 11900, 120, 247)
	if u := c.Stages[0].Memory[0]; u.Limit != 500e6 || u.Device != "a" {
		t.Errorf("%+v; half of a million kB of a may be used", u)
	}
	same(t, "forward", c.Timings[0].Forward, 12)
	same(t, "backward", c.Timings[0].Backward, 36)
	same(t, "send", c.Timings[0].SendNext, 0)

	// The same with recomputation: the forward passes once more. Kept are the inputs 0, 40, 80 of 2 samples. While it
	// runs a layer holds 2 x (0 + 40 + 10), 2 x (40 + 80 + 20), 2 x (80 + 20 + 30).
	c = priceOf(t, m, 6, 2, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, groupOf(0, 0, 1, 2)))
	expect(t, "recomputing", c.Stages[0], 12, 36, 12, 0, 0, 0, 0, 4.8)
	expectMemory(t, "recomputing", c.Stages[0].Memory[0], 11900, 240, 287)
	same(t, "backward", c.Timings[0].Backward, 48)

	// On b everything takes twice as long: forward 1.5 x 6 x 2 x 2, backward 4 x 6 x 2 x 2, update 0.6 x 6 x 2.
	c = priceOf(t, m, 6, 2, on(0, 3, Strategy{Sharding: Replicated}, groupOf(1, 0, 1, 2)))
	expect(t, "slow device", c.Stages[0], 36, 96, 0, 0, 0, 0, 0, 7.2)
	// A replica of two devices: forward 0.6 x 12, backward 1.5 x 12, update 0.4 x 6, half of the states, 6 x 6 x 2 of
	// activations; inputs and outputs are whole on each device.
	c = priceOf(t, m, 6, 2, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 2, 2)))
	expect(t, "tensor degree 2", c.Stages[0], 7.2, 18, 0, 0, 0, 0, 0, 2.4)
	expectMemory(t, "tensor degree 2", c.Stages[0].Memory[0], 5950, 72, 247)
}

// Four replicas in a machine, with a sample each. A ring takes 3 turns of 1 s and a quarter of the bytes at 1000 kB/s. A
// layer of P parameters: weights 3 (1 + 2P/4000), gradients 3 (1 + 3P/4000).
func TestDataParallel(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap})
	four := groupOf(0, 0, 1, 1, 1, 1, 1)
	// All-reduce, twice the gradients of three layers: 2 x (9 + 9 x 700/4000) = 21.15.
	c := priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Replicated}, four))
	expect(t, "replicated", c.Stages[0], 6, 18, 0, 0, 0, 0, 21.15, 4.8)
	same(t, "iteration", c.Seconds, 2*24+21.15+4.8)
	expectMemory(t, "replicated", c.Stages[0].Memory[0], 11900, 60, 120)
	// ZeRO 1: each replica updates a quarter and holds a quarter of the optimizer's state: (5 + 3) x 700.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Optimizer}, four))
	expect(t, "optimizer", c.Stages[0], 6, 18, 0, 0, 0, 0, 21.15, 1.2)
	expectMemory(t, "optimizer", c.Stages[0].Memory[0], 5600, 60, 120)
	// ZeRO 2: gradients are scattered in each micro-batch, 9 + 9 x 700/4000 = 10.575, and weights gathered once, 9 + 6 x
	// 700/4000 = 10.05. A quarter of gradients and optimizer's state is held, (2 + 15/4) x 700, and while the third layer runs
	// its gradients are whole: 80 + 20 + 3 x 400.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Gradients}, four))
	expect(t, "gradients", c.Stages[0], 6, 18, 0, 10.575, 0, 0, 10.05, 1.2)
	expectMemory(t, "gradients", c.Stages[0].Memory[0], 4025, 60, 1300)
	same(t, "forward", c.Timings[0].Forward, 6)
	same(t, "backward", c.Timings[0].Backward, 18+10.575)
	same(t, "iteration", c.Seconds, 2*34.575+10.05+1.2)
	// ZeRO 3: weights twice, gradients once, 2 x (9 + 6 x 700/4000) + (9 + 9 x 700/4000) = 30.675 in each micro-batch, of
	// which weights once, 10.05, forward. A quarter of the states; while the third layer runs its weights and gradients
	// are whole: 80 + 20 + 5 x 400 = 2100.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Full}, four))
	expect(t, "full", c.Stages[0], 6, 18, 0, 30.675, 0, 0, 0, 1.2)
	expectMemory(t, "full", c.Stages[0].Memory[0], 2975, 60, 2100)
	same(t, "forward", c.Timings[0].Forward, 6+10.05)
	same(t, "backward", c.Timings[0].Backward, 18+20.625)
	same(t, "iteration", c.Seconds, 2*54.675+1.2)
}

// What overlaps, slowed down by 1.5 (compute) and 2 (communication).
func TestOverlap(t *testing.T) {
	o := Overlap{Compute: 1.5, Communication: 2}
	// Compute 4 and communication 1: together for 2 s, in which 2/1.5 of the compute is done.
	same(t, "long compute", o.together(4, 1), 2+4-2/1.5)
	// Compute 2 and communication 4: together for 3 s, in which 3/2 of the communication is done.
	same(t, "long communication", o.together(2, 4), 3+4-1.5)
	same(t, "as long", o.together(2, 1.5), 3)
	same(t, "none", Overlap{Off: true}.together(4, 3), 7)

	m := handModel(t, Options{Overlap: o})
	four := groupOf(0, 0, 1, 1, 1, 1, 1)
	// All-reduces of 6.45, 6.9, 7.8 s beside backward passes of 3, 6, 9 s. Together 4.5 s, 9 s and 13.5 s long at most, so
	// compute ends first: 4.5 + 6.45 - 2.25 = 8.7; 9 + 6.9 - 4.5 = 11.4; 13.5 + 7.8 - 6.75 = 14.55. Beyond compute: 5.7,
	// 5.4, 5.55.
	c := priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Replicated}, four))
	expect(t, "replicated", c.Stages[0], 6, 18, 0, 0, 0, 0, 16.65, 4.8)
	// Backward passes of 4, 8, 12 s with recomputation: 6 + 6.45 - 3 - 4 = 5.45; 12 + 6.9 - 6 - 8 = 4.9; communication
	// ends first in the third: 15.6 + 12 - 10.4 - 12 = 5.2.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Replicated, Checkpoint: true}, four))
	expect(t, "recomputing", c.Stages[0], 6, 18, 6, 0, 0, 0, 15.55, 4.8)
	// Fully sharded. Forward 1, 2, 3 s beside 3.15, 3.3, 3.6: 1.5 + 3.15 - 0.75 - 1 = 2.9; 3 + 3.3 - 1.5 - 2 = 2.8;
	// 4.5 + 3.6 - 2.25 - 3 = 2.85. Backward 3, 6, 9 s beside 3.15 + 3.225, 3.3 + 3.45, 3.6 + 3.9: 4.5 + 6.375 - 2.25 - 3 =
	// 5.625; 9 + 6.75 - 4.5 - 6 = 5.25; 13.5 + 7.5 - 6.75 - 9 = 5.25.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Full}, four))
	expect(t, "full", c.Stages[0], 6, 18, 0, 8.55+16.125, 0, 0, 0, 1.2)
	same(t, "forward", c.Timings[0].Forward, 6+8.55)
	same(t, "backward", c.Timings[0].Backward, 18+16.125)

	// Gradients sharded. Backward 3, 6, 9 s beside 3.225, 3.45, 3.9: 4.5 + 3.225 - 2.25 - 3 = 2.475; communication ends first in
	// 6.9 + 6 - 4.6 - 6 = 2.3 and 7.8 + 9 - 5.2 - 9 = 2.6. Nothing hides the weights' 10.05.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Gradients}, four))
	expect(t, "gradients", c.Stages[0], 6, 18, 0, 7.375, 0, 0, 10.05, 1.2)

	// The default: 1.1256 for both.
	d := handModel(t, Options{}).options.Overlap
	same(t, "default", d.together(4, 1), 1.1256+4-1)
}

// Eight replicas in two machines. A path between them costs 6 s and 100 kB/s. Of X bytes: a ring 7 (6 + X/800); within
// machines 3 (1 + X/4000), then between them 6 + X/200.
func TestAcrossMachines(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap, GlobalBatches: []int{16}})
	eight := groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	// Gradients of 300, 600, 1200 bytes: within and between 3.225 + 7.5, 3.45 + 9, 3.9 + 12; rings take 44 and more.
	c := priceOf(t, m, 16, 8, on(0, 3, Strategy{Sharding: Replicated}, eight))
	same(t, "hierarchy", c.Stages[0].Sync, 2*(10.725+12.45+15.9))
	// With tensor degree 2 there are four replicas of whole layers; a device holds half. Within machines 2 replicas: 1 +
	// X/2/2/1000 for a whole layer's X, between machines 6 + X/200.
	c = priceOf(t, m, 16, 8, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 2, 2, 2, 2, 2)))
	same(t, "hierarchy of tensor degree 2", c.Stages[0].Sync, 2*((1+0.075+6+1.5)+(1+0.15+6+3)+(1+0.3+6+6)))
	// Two replicas, one in each machine, have nothing within them: ring and hierarchy are 6 + X/200.
	c = priceOf(t, m, 16, 8, on(0, 1, Strategy{Sharding: Replicated}, groupOf(0, 0, 2, 4, 4)), on(1, 3, Strategy{Sharding: Replicated}, groupOf(0, 4, 2, 4, 4)))
	// Two replicas in one machine: 1 + 150/2/1000 (half of the layer's 300 bytes on each device).
	same(t, "two in a machine", c.Stages[0].Sync, 2*1.075)

	// One a and one b: the slowest path between any two of their classes counts, that of b to b with 10 s and 50 kB/s. A
	// ring of two has one turn with half of the bytes: 10 + 150/50, 10 + 300/50, 10 + 600/50 for all layers.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 3), groupOf(1, 0, 1, 1)))
	same(t, "two classes", c.Stages[0].Sync, 2*(13+16+22))
	// The a, with 3 samples, is slower: 18 + 54 against (9 + 24) x 2 = 66. The update is slower on b: 3.6 x 2 against 4.8.
	expect(t, "two classes", c.Stages[0], 18, 54, 0, 0, 0, 0, 102, 7.2)
	expectMemory(t, "two classes, a", c.Stages[0].Memory[0], 11900, 180, 360)
	expectMemory(t, "two classes, b", c.Stages[0].Memory[1], 11900, 72, 120)
	// With 2 samples each, b is: 36 + 96.
	c = priceOf(t, m, 8, 4, on(0, 3, Strategy{Sharding: Optimizer}, groupOf(0, 0, 1, 2), groupOf(1, 0, 1, 2)))
	expect(t, "slow second class", c.Stages[0], 36, 96, 0, 0, 0, 0, 102, 3.6)

	// Four a of one machine and two b of one: a ring of 6, 5 (10 + X/300), against 3 (1 + X/4000) or 2 + X/1000 within and
	// 10 + X/100 between the two machines. X = 300: 3.225 + 13; 600: 3.45 + 16; 1200: 3.9 + 22.
	c = priceOf(t, m, 12, 6, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 1, 1, 1, 1), groupOf(1, 0, 1, 1, 1)))
	same(t, "machines of two classes", c.Stages[0].Sync, 2*(16.225+19.45+25.9))
}

// Where links within machines are slow, a ring is quicker.
func TestRing(t *testing.T) {
	top := handTopology(t, "1000000000B", "latency: 1s", "latency: 100s")
	m := handModelOn(t, top, Options{Overlap: noOverlap, GlobalBatches: []int{16}})
	// Seven turns of 6 + X/800 for X = 300, 600, 1200, against 3 x 100 within machines.
	c := priceOf(t, m, 16, 8, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)))
	same(t, "ring", c.Stages[0].Sync, 2*7*(18+2100/800.0))
	// Of tensor degree 2, four replicas: three turns of 6 + X/400, against 100 within machines.
	c = priceOf(t, m, 16, 8, on(0, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 2, 2, 2, 2, 2)))
	same(t, "ring of tensor degree 2", c.Stages[0].Sync, 2*3*(18+2100/400.0))
	// Four b in two machines, X = 300: three turns of 10 + 75/50 = 34.5; within and between 2 + 150/500 + 10 + 150/50.
	c = priceOf(t, m, 8, 4, on(0, 1, Strategy{Sharding: Replicated}, groupOf(1, 0, 1, 1, 1, 1, 1)), on(1, 3, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 4)))
	same(t, "four b", c.Stages[0].Sync, 2*15.3)
}

// Stages that follow each other. Layer 0 puts out 40 bytes of a sample, layer 1 80.
func TestSend(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap, GlobalBatches: []int{16}})
	plain := Strategy{Sharding: Replicated}
	// Both in the first machine of a: 2 x (1 + 40 x 2/1000), every replica for itself.
	c := priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 0, 1, 2, 2)), on(1, 3, plain, groupOf(0, 2, 1, 2, 2)))
	same(t, "in a machine", c.Stages[0].Send, 2*1.08)
	same(t, "one way", c.Timings[0].SendNext, 1.08)
	same(t, "last", c.Stages[1].Send, 0)
	// Steps 8 and 40; synchronisation 2 (1 + 300/2000) of layer 0, 2 (2 + 1800/2000) of layers 1 and 2; four micro-batches.
	// The second stage is busy with receiving, too.
	same(t, "iteration", c.Seconds, (8+2.16+40)+3*(40+2.16)+(5.8+4))
	// In two machines: two replicas send over one link, 6 + 2 x 80/100.
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 2, 1, 2, 2)), on(1, 3, plain, groupOf(0, 4, 1, 2, 2)))
	same(t, "between machines", c.Stages[0].Send, 2*7.6)
	// A stage of two machines sends from each of them: four replicas of one sample.
	c = priceOf(t, m, 16, 8, on(0, 2, plain, groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)), on(2, 3, plain, groupOf(1, 0, 1, 8)))
	same(t, "two machines", c.Stages[0].Send, 2*(8+4*80/50.0))
	// Two replicas of two devices, each of which sends all, share a machine's link; the larger share counts. To a and b, the slower path counts.
	c = priceOf(t, m, 16, 4, on(0, 1, plain, groupOf(0, 0, 2, 3, 1)), on(1, 3, plain, groupOf(0, 4, 1, 3), groupOf(1, 0, 1, 1)))
	same(t, "to two classes", c.Stages[0].Send, 2*(8+4*40*3/50.0))
	// From a mixed stage: a sends 2 x 40 to b over 8 s and 50 kB/s, b sends 40 to b over 10 s and 50 kB/s.
	c = priceOf(t, m, 16, 3, on(0, 1, plain, groupOf(0, 0, 1, 2), groupOf(1, 0, 1, 1)), on(1, 3, plain, groupOf(1, 2, 1, 3)))
	same(t, "from two classes", c.Stages[0].Send, 2*max(8+80/50.0, 10+40/50.0))

	// Machines are numbered through the classes: the first machine of b is not the third of a, which does not exist.
	for _, c := range []struct{ class, first, devices, want int }{{0, 0, 4, 0}, {0, 3, 1, 0}, {0, 4, 2, 1}, {0, 3, 2, -1}, {1, 0, 2, 2}, {1, 3, 1, 3}, {1, 1, 2, -1}} {
		if got := m.machine(&Stage{Groups: []Group{{Class: c.class, First: c.first, Replicas: c.devices, Tensor: 1}}}); got != c.want {
			t.Errorf("devices %d to %d of class %d: machine %d, want %d", c.first, c.first+c.devices-1, c.class, got, c.want)
		}
	}
	if got := m.machine(&Stage{Groups: make([]Group, 2)}); got != -1 {
		t.Errorf("two groups are in machine %d", got)
	}
}

// Activations are of all micro-batches in flight: as many as stages follow, itself included, but no more than there are.
func TestInFlight(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap})
	plain := Strategy{Sharding: Replicated}
	stages := []Stage{on(0, 1, plain, groupOf(0, 0, 1, 2)), on(1, 2, plain, groupOf(0, 1, 1, 2)), on(2, 3, plain, groupOf(0, 2, 1, 2))}
	for _, c := range []struct {
		batch int
		want  [3]float64
	}{{8, [3]float64{3 * 20, 2 * 40, 60}}, {4, [3]float64{2 * 20, 2 * 40, 60}}, {2, [3]float64{20, 40, 60}}} {
		cost := priceOf(t, m, c.batch, 2, stages...)
		for i, want := range c.want {
			same(t, fmt.Sprintf("batch %d, stage %d", c.batch, i), cost.Stages[i].Memory[0].Activations/1e3, want)
		}
	}
}

// Layers of another tensor degree in a stage: activations are redistributed, there and back.
func TestConvert(t *testing.T) {
	m := handModel(t, Options{Overlap: noOverlap, GlobalBatches: []int{16}})
	mixed := func(devices, first int, tensors ...int) Stage {
		s := Stage{From: 0, To: 3, Groups: []Group{groupOf(0, first, 1, Even(4, devices)...)}}
		for _, tensor := range tensors {
			s.Strategies = append(s.Strategies, Strategy{Tensor: tensor, Sharding: Replicated})
		}
		return s
	}
	// Two devices: 2 samples each, then both 4 at tensor degree 2. Half of 4 x 40 bytes passes, at 1 s and 1000 kB/s; and
	// half of 4 x 80 back to degree 1.
	c := priceOf(t, m, 8, 4, mixed(2, 0, 0, 2, 0))
	same(t, "convert", c.Stages[0].Convert, 2*1.08+2*1.16)
	// Forward 1 x 2, 2 x 4 x 0.6, 3 x 2; backward 3 x 2, 2 x 4 x 1.5, 9 x 2; a replica of degree 2 has nobody to
	// synchronise with; update 0.8, 0.8, 2.4.
	expect(t, "convert", c.Stages[0], 12.8, 36, 0, 0, 4.48, 0, 2*(1+0.15)+2*(1+0.6), 4)
	same(t, "forward", c.Timings[0].Forward, 12.8+2.24)
	same(t, "backward", c.Timings[0].Backward, 36+2.24)
	expectMemory(t, "convert", c.Stages[0].Memory[0], 17*(100+100+400), 2*10+4*12+2*30, 4*120)
	same(t, "same degree", priceOf(t, m, 8, 4, mixed(2, 0, 2, 2, 2)).Stages[0].Convert, 0)
	// Eight devices in two machines: the path between them, of 6 s and 100 kB/s. Replicas of 4 samples in all: shares of 1
	// on both sides.
	s := mixed(4, 0, 0, 2, 2)
	s.Groups[0] = groupOf(0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	same(t, "two machines", priceOf(t, m, 16, 8, s).Stages[0].Convert, 2*(6+0.5*40*2/100))
}

func TestUnpriced(t *testing.T) {
	m := handModel(t, Options{})
	_, err := m.Price(16, 16, []Stage{on(0, 1, Strategy{Sharding: Replicated}, groupOf(0, 0, 1, 8, 8)), on(1, 3, Strategy{Sharding: Replicated}, groupOf(0, 2, 1, 16))})
	e := (*UnpricedError)(nil)
	if !errors.As(err, &e) || e.Stage != 1 || e.Layer != 1 || !strings.Contains(e.Error(), "not profiled on a at tensor degree 1 with a micro-batch of 16") {
		t.Fatal(err)
	}
	_, err = m.Price(8, 8, []Stage{on(0, 3, Strategy{Sharding: Replicated}, groupOf(1, 0, 2, 8))})
	if !errors.As(err, &e) || e.Stage != 0 || e.Layer != 0 || !strings.Contains(e.Error(), "not profiled on b at tensor degree 2") {
		t.Fatal(err)
	}
}

// Times to divide a micro-batch by: of b, twice as slow and calibrated by 1.5, layers 1 and 2 take (1.5 + 4) k n 3 seconds, and
// forward once more where half of them is recomputed.
func TestTimes(t *testing.T) {
	times := handModel(t, Options{GlobalBatches: []int{8}, Calibration: Calibration{Compute: map[string]float64{"b": 1.5}}}).ReplicaTimes()
	for _, c := range []struct {
		class, samples int
		again, want    float64
	}{{1, 1, 0, 5.5 * 5 * 3}, {1, 2, 0, 2 * 5.5 * 5 * 3}, {1, 1, 0.5, 5.5*5*3 + 0.5*1.5*5*3}, {0, 1, 0, 4 * 5}} {
		if got, ok := times.Stage(c.class, 1, c.samples, 1, 3, c.again); !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if _, ok := times.Stage(1, 1, 9, 1, 3, 0); ok {
		t.Error("nine samples were not profiled")
	}
}
