package forward

import (
	"slices"
	"testing"
)

// A pair is waited for as long as it is prompt; when it fails, no longer, until it counts no more than a step late.
func TestWhoIsWaitedFor(t *testing.T) {
	c := testConfig(6, 3, 200)
	r := round{config: c, prompt: c.allPairs()}
	send := func(at uint32, ranks ...uint16) (done bool) {
		t.Helper()
		for _, rank := range ranks {
			if done {
				t.Fatalf("decided before rank %d", rank)
			}
			_, done = r.take(int(rank), Frame{Step: at, Rank: rank})
		}
		return done
	}
	expect := func(done bool, want ...arrival) {
		t.Helper()
		if !done {
			t.Fatalf("step %d is not decided", r.step)
		}
		if got := r.close(); !slices.Equal(got, want) {
			t.Fatalf("step %d: %v counted, want %v", r.step, got, want)
		}
	}
	goOn := func(step uint32) bool { _, done := r.take(5, Frame{Step: step, Rank: 5, GoOn: true}); return done }
	all := []arrival{{0, 0}, {1, 0}, {2, 0}}

	r.begin(0)
	if goOn(0) {
		t.Fatal("decided without a pair")
	}
	expect(send(0, 3, 0, 1, 4, 5, 2), all...)
	r.begin(1)
	if send(1, 0, 1, 4, 5, 2) || goOn(0) || goOn(2) {
		t.Fatal("decided without rank 3")
	}
	expect(goOn(1), arrival{0, 0}, arrival{2, 0})
	for step := uint32(2); step < 4; step++ { // nobody waits for pair 1
		r.begin(step)
		if step == 2 && send(2, 2, 3) {
			t.Fatal("frames of a step for which the pair is not due decided it")
		}
		expect(send(step, 0, 5, 4, 1), arrival{0, 0}, arrival{2, 0})
	}
	r.begin(4) // its other half of step 1 comes: it counts, three steps late
	expect(send(1, 3) || send(4, 0, 1, 4, 5), arrival{0, 0}, arrival{1, 3}, arrival{2, 0})
	r.begin(5) // it is due again, and not yet waited for
	expect(send(5, 0, 1, 4, 5), arrival{0, 0}, arrival{2, 0})
	r.begin(6) // one step late: waited for from now on
	expect(send(5, 2, 3) || send(6, 0, 1, 4, 5), arrival{0, 0}, arrival{1, 1}, arrival{2, 0})
	r.begin(7)
	expect(send(7, 0, 1, 4, 5, 2, 3), all...)
	r.begin(8) // two steps late is too late
	send(8, 0, 1, 4, 5)
	expect(goOn(8), arrival{0, 0}, arrival{2, 0})
	r.begin(9)
	expect(send(9, 0, 1, 4, 5), arrival{0, 0}, arrival{2, 0})
	r.begin(10)
	expect(send(8, 2, 3) || send(10, 0, 1, 4, 5), arrival{0, 0}, arrival{1, 2}, arrival{2, 0})
	r.begin(11)
	expect(send(11, 0, 1, 4, 5), arrival{0, 0}, arrival{2, 0})
	r.begin(64) // a block begins: all are due, and what came before is gone
	if send(11, 2, 3) || r.due[1] != 64 {
		t.Fatal("a pair of the block before counts")
	}
	expect(send(64, 2, 3) || send(64, 0, 1, 4, 5), all...)
	if r.prompt != 0b111 {
		t.Errorf("prompt %b", r.prompt)
	}
}

// Who asks to stop is heard on his own subject, whatever the step; the step goes on, and so does the block.
func TestStopIsHeard(t *testing.T) {
	r := round{config: testConfig(4, 2, 200)}
	for i, c := range []struct {
		sender     int
		f          Frame
		used, stop bool
	}{
		{1, Frame{Rank: 2, Stop: true}, false, false},
		{4, Frame{Rank: 4, Stop: true}, false, false},
		{1, Frame{Step: 500, Rank: 1, Stop: true}, true, true},
		{1, Frame{Rank: 1, Stop: true}, true, true},
		{0, Frame{Rank: 0, Stop: true}, true, true},
	} {
		if i == 2 {
			r.begin(3)
		}
		if used, done := r.take(c.sender, c.f); used != c.used || done || r.stop != c.stop {
			t.Errorf("%d: used %v, done %v, stop %v", i, used, done, r.stop)
		}
	}
	if r.begin(4); !r.stop {
		t.Error("forgotten in the next step")
	}
}

// Without a prompt pair the first that is whole decides.
func TestNobodyIsPrompt(t *testing.T) {
	r := round{config: testConfig(6, 3, 200)}
	r.begin(3)
	for i, rank := range []int{0, 2, 4, 3} {
		if _, done := r.take(rank, Frame{Step: 3, Rank: uint16(rank)}); done != (i == 3) {
			t.Fatalf("frame %d: done %v", i, done)
		}
	}
	if got := r.close(); !slices.Equal(got, []arrival{{1, 0}}) || r.prompt != 0b010 {
		t.Errorf("%v counted, prompt %b", got, r.prompt)
	}
}

// Another rank's frame, one that comes twice, one of a rank that is none change nothing, and are not counted as used.
func TestFramesThatDoNotCount(t *testing.T) {
	r := round{config: testConfig(4, 2, 200), prompt: 3}
	r.begin(5)
	for _, c := range []struct {
		from int
		f    Frame
		used bool
	}{
		{0, Frame{Step: 5, Rank: 1, Losses: [2]float32{9, 9}}, false},
		{1, Frame{Step: 5, Rank: 1, Losses: [2]float32{1, 2}}, true},
		{1, Frame{Step: 5, Rank: 1, Losses: [2]float32{9, 9}}, false},
		{2, Frame{Step: 4, Rank: 2}, false},
		{2, Frame{Step: 6, Rank: 2}, false},
		{4, Frame{Step: 5, Rank: 4}, false},
		{4, Frame{Step: 5, Rank: 4, GoOn: true}, false},
		{3, Frame{Step: 5, Rank: 2, GoOn: true}, false},
	} {
		if used, done := r.take(c.from, c.f); used != c.used || done {
			t.Errorf("%+v from %d: used %v, done %v", c.f, c.from, used, done)
		}
	}
	if r.losses[1] != [2]float32{1, 2} || r.seen[0] || r.seen[2] || r.seen[3] {
		t.Errorf("%+v", r)
	}
}

// However steep the losses, no step moves a weight so far that a check could miss it.
func TestStepsAreBounded(t *testing.T) {
	c := testConfig(8, 4, 10)
	c.LearningRate = 100
	r, tuning := round{config: c}, newTuning()
	var counted []arrival
	for p := range 4 {
		counted = append(counted, arrival{p, uint32(p % 2)})
		r.losses[2*p], r.losses[2*p+1] = [2]float32{1e6, 0}, [2]float32{-1e6, 0}
	}
	w := &Weights{tensors: []Tensor{{Name: "w", Shape: []int{4096}}}, data: [][]int32{make([]int32, 4096)}}
	replica := Replica{Chain: Chain{Header: &Header{Config: *c}}, Weights: w}
	for step := range uint32(checkEvery) {
		replica.apply(step+1, r.decide(counted, &tuning))
	}
	for _, x := range w.data[0] {
		if x > checkEvery*maxMove || x < -checkEvery*maxMove {
			t.Fatalf("an entry moved by %d in %d steps", x, checkEvery)
		}
	}
}
