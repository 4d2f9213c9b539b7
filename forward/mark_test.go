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

// Who begins with marks, with weights to start from or later ones, ends with everybody's weights.
func TestMarks(t *testing.T) {
	net, c := network3(t), testConfig(6, 3, 150)
	c.Momentum = 0.5
	memory := NewMemory()
	var marks []Mark
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
				m, err := DecodeMark(p.Config, p.Mark(since).Encode(nil))
				if err != nil {
					return err
				}
				marks, at, since = append(marks, m), append(at, bus.at), nil
			}
			return nil
		}
	})
	want := all[0].Weights.Hash()
	follow := func(w *Weights, marks []Mark, at, done int) (string, error) {
		p := &Processor{Config: c, Rank: -1, Data: all[0].Data, Weights: w, Bus: memory.after(at)}
		if err := p.Follow(marks, done); err != nil {
			return "", err
		}
		return w.Hash(), errors.Join(p.Run(t.Context()))
	}
	for n := range marks {
		w := NewWeights(net, c.Key)
		if _, err := follow(w, marks[:n+1], at[n], 0); err != nil || w.Hash() != want {
			t.Errorf("after %d marks: %v, %s, want %s", n+1, err, w.Hash(), want)
		}
	}
	w := kept.Clone()
	if _, err := follow(w, marks, at[2], 50); err != nil || w.Hash() != want {
		t.Errorf("from weights after step 50: %v, %s, want %s", err, w.Hash(), want)
	}
	if _, err := follow(kept.Clone(), marks, at[2], 49); !errors.Is(err, ErrWeights) {
		t.Errorf("other weights: %v", err)
	}
	if _, err := follow(kept.Clone(), marks[:1], at[0], 50); !errors.Is(err, ErrConfig) {
		t.Errorf("weights of later steps than the marks: %v", err)
	}
}

func FuzzMark(f *testing.F) {
	c := testConfig(4, 2, 10)
	m := Fresh(c, []Commit{{Pairs: 3, Increments: []int32{5, -7}}})
	m.Weights, m.seen[1] = "abc", true
	f.Add(m.Encode(nil))
	f.Add(m.Encode(nil)[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMark(c, b)
		if err != nil {
			if !errors.Is(err, ErrMark) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeMark(c, m.Encode(nil))
		if err != nil || !bytes.Equal(again.Encode(nil), m.Encode(nil)) {
			t.Fatalf("%+v: %v", m, err)
		}
	})
}
