package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"evenkeel/forward"
	"evenkeel/internal/chart"
	"evenkeel/internal/stats"
	"evenkeel/train"
)

const (
	budget      = 10_000 // forward passes of perPass examples
	perPass     = 64
	seenEvery   = 500 // passes
	perturbedBy = 1e-3
)

// peer is a method that runs within a budget. Rates decay by a cosine.
type peer struct {
	name  string
	first float64 // rate in the middle of the first grid; the grid grows while the best rate is at its edge
	run   func(w *world, rate float64, seed uint64, see func(accuracy float64)) error
}

// population is a method that tries many directions on one batch: candidates are weights plus perturbations. update returns
// the worth of each direction from the losses. With clean, the first loss is that of the weights themselves.
func population(n int, clean, normal bool, update func(losses []float64) []float64) func(w *world, rate float64, seed uint64, see func(float64)) error {
	return func(w *world, rate float64, seed uint64, see func(float64)) error {
		values := w.net.NewValues()
		w.net.Initialize(values, rand.New(rand.NewPCG(seed, 0)))
		pass, err := w.net.NewPass(perPass, false)
		if err != nil {
			return err
		}
		candidate := w.net.NewValues()
		along := func(to *train.Values, step, d int, by float64) {
			rng := rand.New(rand.NewPCG(seed<<32|uint64(step), uint64(d)+1))
			for k, p := range to.Params {
				for i := range p {
					z := rng.NormFloat64()
					if !normal {
						z = math.Copysign(1, z)
					}
					to.Params[k][i] += float32(by * z)
				}
			}
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		each := n
		if clean {
			each++
		}
		return w.watched(values, each, see, func(step int, progress float64) error {
			b := w.batch(rng, perPass)
			var losses []float64
			for d := range each {
				candidate.Copy(values)
				if d += n - each; d >= 0 {
					along(candidate, step, d, perturbedBy)
				}
				l, err := pass.Loss(candidate, b)
				if err != nil {
					return err
				}
				losses = append(losses, l)
			}
			decayed := rate * 0.5 * (1 + math.Cos(math.Pi*progress))
			for d, worth := range update(losses) {
				along(values, step, d, -decayed*worth)
			}
			return nil
		})
	}
}

// watched makes steps, of each passes, until the budget is used, and calls see with the accuracy on held-out data at
// intervals.
func (w *world) watched(values *train.Values, each int, see func(float64), step func(step int, progress float64) error) error {
	used, next := 0, seenEvery
	for j := 0; used+each <= budget; j++ {
		if w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		if err := step(j, float64(used)/budget); err != nil {
			return err
		}
		for used += each; next <= budget && (used+each > next || used >= next); next += seenEvery {
			right, err := w.right(values)
			if err != nil {
				return err
			}
			see(right)
		}
	}
	return nil
}

// deviation returns the mean and the sample standard deviation of losses.
func deviation(losses []float64) (mean, std float64) {
	for _, l := range losses {
		mean += l / float64(len(losses))
	}
	for _, l := range losses {
		std += (l - mean) * (l - mean) / float64(len(losses)-1)
	}
	return mean, math.Sqrt(std) + 1e-12
}

// fzoo is FZOO (Dang et al. 2025): the differences of fifteen passes along signs to a clean pass, over their deviation.
func fzoo(losses []float64) []float64 {
	_, std := deviation(losses[1:])
	worth := make([]float64, len(losses)-1)
	for d, l := range losses[1:] {
		worth[d] = (l - losses[0]) / std / float64(len(worth))
	}
	return worth
}

// evolution is an evolution strategy's z-score (Qiu et al. 2025).
func evolution(losses []float64) []float64 {
	mean, std := deviation(losses)
	worth := make([]float64, len(losses))
	for d, l := range losses {
		worth[d] = (l - mean) / std / float64(len(losses))
	}
	return worth
}

// twoPoint is MeZO's (Malladi et al., NeurIPS 2023).
func twoPoint(w *world, rate float64, seed uint64, see func(float64)) error {
	values := w.net.NewValues()
	w.net.Initialize(values, rand.New(rand.NewPCG(seed, 0)))
	pass, err := w.net.NewPass(perPass, false)
	if err != nil {
		return err
	}
	move := func(step int, by float64) {
		rng := rand.New(rand.NewPCG(seed<<32|uint64(step), 7))
		for _, p := range values.Params {
			for i := range p {
				p[i] += float32(by * rng.NormFloat64())
			}
		}
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	return w.watched(values, 2, see, func(step int, progress float64) error {
		b := w.batch(rng, perPass)
		move(step, perturbedBy)
		plus, err := pass.Loss(values, b)
		if err != nil {
			return err
		}
		move(step, -2*perturbedBy)
		minus, err := pass.Loss(values, b)
		if err != nil {
			return err
		}
		move(step, perturbedBy-rate*0.5*(1+math.Cos(math.Pi*progress))*(plus-minus)/(2*perturbedBy))
		return nil
	})
}

// ours is Evenkeel's method; a rate of 0 means the default rate.
func ours(processors, directions int) func(w *world, rate float64, seed uint64, see func(float64)) error {
	return func(w *world, rate float64, seed uint64, see func(float64)) error {
		c := config(processors, directions, budget/processors, seed)
		if rate > 0 {
			c.LearningRate = rate
		}
		next := seenEvery
		_, err := w.train(c, processors, func(p *forward.Processor) {
			if p.Rank > 0 {
				return
			}
			p.OnStep = func(step int, _ forward.Commit) error {
				for ; next <= budget && (processors*(step+1) >= next || processors*(step+2) > next); next += seenEvery {
					right, _, err := forward.Evaluate(w.net, p.Weights, w.held)
					if err != nil {
						return err
					}
					see(right)
				}
				return nil
			}
		})
		return err
	}
}

// curve returns a run's accuracy every seenEvery passes; nil if the run diverged.
func (w *world) curve(p *peer, rate float64, seed uint64) ([]float64, error) {
	var seen []float64
	err := p.run(w, rate, seed, func(a float64) { seen = append(seen, a) })
	if errors.Is(err, forward.ErrOverflow) {
		return nil, nil
	}
	return seen, err
}

// tune returns the best rate of a grid in powers of two, by the accuracy on a seed that is not used again.
func (w *world) tune(p *peer) (float64, error) {
	got := map[float64]float64{}
	best := p.first
	for {
		for _, rate := range []float64{best / 2, best, 2 * best} {
			if _, known := got[rate]; known {
				continue
			}
			c, err := w.curve(p, rate, 100)
			if err != nil {
				return 0, err
			}
			if got[rate] = 0; len(c) > 0 {
				got[rate] = c[len(c)-1]
			}
		}
		at := best
		for _, rate := range []float64{best / 2, 2 * best} {
			if got[rate] > got[at] {
				at = rate
			}
		}
		if at == best {
			return best, nil
		}
		best = at
	}
}

// peers compares methods with equal numbers of forward passes.
func (w *world) peers() error {
	const seeds = 5
	fmt.Print("| method | rate | test accuracy (95% interval) |\n|---|---|---|\n")
	f := chart.Figure{Title: "Digits: test accuracy over forward passes", Panels: []chart.Panel{{XLabel: fmt.Sprintf("forward passes of %d examples", perPass), YLabel: "test accuracy", LogX: true}}}
	for _, p := range []peer{
		{"ours, 8 processors, by default", 0, ours(8, 8)}, {"ours, 8 processors", 1.0 / 32, ours(8, 8)}, {"ours, 16 processors", 1.0 / 32, ours(16, 16)}, {"ours, 8 processors, `pairs`", 1.0 / 32, ours(8, 4)},
		{"MeZO", 1.0 / 256, twoPoint}, {"FZOO", 1.0 / 16, population(15, true, false, fzoo)}, {"evolution strategy, population 30", 1.0 / 8, population(30, false, true, evolution)},
	} {
		rate := p.first
		if rate > 0 {
			tuned, err := w.tune(&p)
			if err != nil {
				return err
			}
			rate = tuned
		}
		var ends []float64
		s := chart.Series{Name: strings.ReplaceAll(p.name, "`", ""), Kind: chart.Line}
		for seed := range seeds {
			c, err := w.curve(&p, rate, uint64(seed+1))
			if err != nil {
				return err
			}
			if len(c) != budget/seenEvery {
				return fmt.Errorf("%s at rate %g, seed %d: %d values", p.name, rate, seed, len(c))
			}
			for i, a := range c {
				if seed == 0 {
					s.X, s.Y = append(s.X, float64((i+1)*seenEvery)), append(s.Y, 0)
				}
				s.Y[i] += a / seeds
			}
			ends = append(ends, c[len(c)-1])
		}
		f.Panels[0].Series = append(f.Panels[0].Series, s)
		e := stats.Bootstrap([][]float64{ends})
		rate = cmp.Or(rate, config(8, 8, 1, 1).LearningRate)
		fmt.Printf("| %s | %.3g | %.3f (%.3f to %.3f) |\n", p.name, rate, e.Mean, e.Low, e.High)
	}
	return f.Save("docs/images/forward.svg")
}
