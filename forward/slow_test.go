package forward

import (
	"testing"
	"time"

	"evenkeel/train"
)

// slowModel takes its time in every step.
type slowModel struct {
	Model
	time time.Duration
}

func (s *slowModel) Losses(w *Weights, b train.Batch) ([2]float32, error) {
	time.Sleep(s.time)
	return s.Model.Losses(w, b)
}

// A pair three times as slow as the others counts in about every third step, and the others do not wait for it.
func TestSlowPairCountsInItsShare(t *testing.T) {
	net, c := network3(t), testConfig(6, 3, 256)
	const each = 6 * time.Millisecond
	begun := time.Now()
	all := runAll(t, c, net, NewMemory(), func(p *Processor) {
		p.Patience = time.Millisecond
		if p.Model = (&slowModel{p.Model, each}); p.Rank/2 == 2 {
			p.Model = &slowModel{p.Model, 2*each + each/2} // and each
		}
	})
	took := time.Since(begun)
	for _, p := range all {
		if p.Weights.Hash() != all[0].Weights.Hash() {
			t.Errorf("processor %d has other weights", p.Rank)
		}
	}
	s := all[4].Stats()
	share := 1 - float64(s.Missed)/256
	t.Logf("it counted in %.2f of the steps, %d of them late; %v for 256 steps of %v", share, s.Late, took, each)
	if share < 0.15 || share > 0.55 || s.Late < 30 {
		t.Errorf("the slow pair counted in %.2f of the steps: %+v", share, s)
	}
	if took > 256*each*5/2 {
		t.Errorf("256 steps of %v took %v", each, took)
	}
	if alone := all[0].Stats(); alone.Missed > 40 {
		t.Errorf("a pair in time missed %d steps", alone.Missed)
	}
}
