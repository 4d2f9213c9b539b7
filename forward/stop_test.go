package forward

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// A run that is asked to stop ends with the block that is being decided, with the weights that it has there without; its log says so, and replay ends there.
func TestStopEndsTheRun(t *testing.T) {
	net, c := network3(t), testConfig(4, 4, 300)
	c.Estimator, c.Examples = Each, []int{3, 3}
	run := func(ask bool) (all []*Processor, log []byte, hashes []string) {
		memory := NewMemory()
		all = runAll(t, c, net, memory, func(p *Processor) {
			p.OnBlock = func(b *Block, encoded []byte) error {
				if p.Rank == 0 {
					log = append(log, encoded...)
					hashes = append(hashes, p.Weights.Hash())
				}
				if ask && p.Rank > 1 && b.Number == 1 { // two of them, in one block
					return p.Stop(t.Context())
				}
				return nil
			}
		})
		return all, log, hashes
	}
	_, _, whole := run(false)
	all, log, stopped := run(true)
	if want := whole[:3]; !slices.Equal(stopped, want) {
		t.Fatalf("weights %v after each block, want %v", stopped, want)
	}
	for _, p := range all {
		if p.Weights.Hash() != whole[2] || p.Steps() != 192 || !p.Done() {
			t.Errorf("rank %d: %d steps, done %v, weights %s", p.Rank, p.Steps(), p.Done(), p.Weights.Hash())
		}
		if err := p.Stop(t.Context()); err != nil || p.Stats().Sent > 16*194 {
			t.Errorf("rank %d: stop after the end: %v, %d bytes", p.Rank, err, p.Stats().Sent)
		}
	}

	r, encoded := replicaFrom(t, c, NewWeights(net, c.Key), all[0].Header.Data.Count)
	l, err := NewLogReader(bytes.NewReader(slices.Concat(encoded, log)))
	if err != nil {
		t.Fatal(err)
	}
	done, err := Replay(l, r.Weights, 0)
	if err != nil || !done.Done() || done.Steps() != 192 || done.Weights.Hash() != whole[2] {
		t.Fatalf("replay: %v, done %v after %d steps", err, done.Done(), done.Steps())
	}
	more := Block{Number: 3, Steps: make([]Commit, 64), hash: make([]byte, 32), tuning: newTuning()}
	for i := range more.Steps {
		more.Steps[i].Increments = make([]int32, 4)
	}
	if b := more.encode(done.chain); done.Follows(b) {
		t.Error("a block follows the last")
	} else if _, err := done.Apply(b); !errors.Is(err, ErrLog) {
		t.Errorf("a block after the last: %v", err)
	}
}
