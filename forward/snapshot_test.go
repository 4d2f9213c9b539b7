package forward

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// after reads a bus from some frame on.
func (m *Memory) after(at int) Bus {
	b := m.Reader().(*memoryReader)
	b.at = at
	return b
}

// position is a bus that counts.
type position struct {
	Bus
	at int
}

func (p *position) Next(ctx context.Context) ([]byte, error) {
	b, err := p.Bus.Next(ctx)
	if err == nil {
		p.at++
	}
	return b, err
}

// Who begins with snapshots, with weights to start from or later ones, ends with everybody's weights.
func TestSnapshots(t *testing.T) {
	net, c := network3(t), testConfig(6, 3, 150)
	c.Momentum = 0.5
	memory := NewMemory()
	var snapshots []Snapshot
	var at []int
	var kept *Weights
	all := runAll(t, c, net, memory, func(p *Processor) {
		if p.Rank != 0 {
			return
		}
		bus := &position{Bus: p.Bus}
		p.Bus = bus
		var since []Commit
		p.Each = func(step int, c Commit) error {
			if step == 49 {
				kept = p.Weights.Clone()
			}
			if since = append(since, c); len(since) == 40 {
				m, err := DecodeSnapshot(p.Config, p.Snapshot(since).Encode(nil))
				if err != nil {
					return err
				}
				snapshots, at, since = append(snapshots, m), append(at, bus.at), nil
			}
			return nil
		}
	})
	want := all[0].Weights.Hash()
	follow := func(w *Weights, snapshots []Snapshot, at, done int) (string, error) {
		p := &Processor{Config: c, Rank: -1, Data: all[0].Data, Weights: w, Bus: memory.after(at)}
		if err := p.Follow(snapshots, done); err != nil {
			return "", err
		}
		return w.Hash(), errors.Join(p.Run(t.Context()))
	}
	for n := range snapshots {
		w := NewWeights(net, c.Key)
		if _, err := follow(w, snapshots[:n+1], at[n], 0); err != nil || w.Hash() != want {
			t.Errorf("after %d snapshots: %v, %s, want %s", n+1, err, w.Hash(), want)
		}
	}
	w := kept.Clone()
	if _, err := follow(w, snapshots, at[2], 50); err != nil || w.Hash() != want {
		t.Errorf("from weights after step 50: %v, %s, want %s", err, w.Hash(), want)
	}
	if _, err := follow(kept.Clone(), snapshots, at[2], 49); !errors.Is(err, ErrWeights) {
		t.Errorf("other weights: %v", err)
	}
	if _, err := follow(kept.Clone(), snapshots[:1], at[0], 50); !errors.Is(err, ErrConfig) {
		t.Errorf("weights of later steps than the snapshots: %v", err)
	}
}

func FuzzSnapshot(f *testing.F) {
	c := testConfig(4, 2, 10)
	m := NewSnapshot(c, []Commit{{Pairs: 3, Increments: []int32{5, -7}}})
	m.Weights, m.seen[1] = "abc", true
	f.Add(m.Encode(nil))
	f.Add(m.Encode(nil)[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeSnapshot(c, b)
		if err != nil {
			if !errors.Is(err, ErrSnapshot) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeSnapshot(c, m.Encode(nil))
		if err != nil || !bytes.Equal(again.Encode(nil), m.Encode(nil)) {
			t.Fatalf("%+v: %v", m, err)
		}
	})
}
