// Command recurrent tries a recurrent summary per node: a GRU over the node's last rounds, pooled over the fleet, beside the row that the deployed network
// sees. Both kinds learn the same recorded rounds; it compares their errors, their play and their time, and writes them into experiments/RESULTS.md.
//
//	go run ./experiments/recurrent
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/experiments/internal/program"
	"github.com/evenkeel/evenkeel/experiments/internal/results"
	"github.com/evenkeel/evenkeel/internal/stats"
)

func main() {
	var t trial
	flag.IntVar(&t.episodes, "episodes", 800, "recorded episodes to learn from; errors are judged on an eighth as many others, twice")
	flag.IntVar(&t.rounds, "rounds", 200, "rounds of an episode and of a judged run")
	flag.IntVar(&t.updates, "updates", 8000, "updates of a training")
	flag.IntVar(&t.trainings, "trainings", 3, "seeds of the training")
	flag.IntVar(&t.seeds, "seeds", 30, "seeds to judge on")
	flag.IntVar(&t.drawn, "clusters", 3, "drawn clusters to judge on, beside the held-out one")
	out := flag.String("out", "experiments/RESULTS.md", "file whose section is replaced")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		text, err := t.run(ctx)
		if err != nil {
			return err
		}
		fmt.Print(text)
		return results.Replace(*out, "recurrent", text)
	})
}

// rates are the learning rates of which each kind has the best.
var rates = []float64{1e-3, 3e-3, 1e-2}

// kinds of networks.
var kinds = []struct {
	name      string
	recurrent bool
}{{"row alone", false}, {"row and summary", true}}

type trial struct {
	episodes, rounds, updates, trainings, seeds, drawn int
	begun                                              time.Time
}

func (t *trial) note(format string, args ...any) {
	fmt.Fprintln(os.Stderr, time.Since(t.begun).Round(time.Second), fmt.Sprintf(format, args...))
}

// fitted are the networks of one kind.
type fitted struct {
	rate     float64
	nets     []*network    // by training seed
	tuning   []float64     // progress on the clusters that the rate was chosen on, of the first seed, by rate
	shares   []float64     // explained variance on episodes of their own, by rate
	seconds  float64       // of an update, two trainings at a time
	unseen   []float64     // explained variance on other episodes, by training seed
	missed   [][]float64   // what is missing from it, by episode
	duration time.Duration // of the values of a decision
}

func (t *trial) run(ctx context.Context) (string, error) {
	t.begun = time.Now()
	var data [3][]*played // to learn from, to compare rates on, to judge on
	for k, n := range []int{t.episodes, t.episodes / 8, t.episodes / 8} {
		var err error
		if data[k], err = gather(ctx, uint64(1+k), n, t.rounds); err != nil {
			return "", err
		}
	}
	t.note("%d, %d and %d episodes", len(data[0]), len(data[1]), len(data[2]))
	j, err := newJudge(5, t.drawn)
	if err != nil {
		return "", err
	}
	j.seeds, j.rounds = t.seeds, t.rounds
	if err := j.heldOut(); err != nil {
		return "", err
	}
	chooser, err := newJudge(6, 6)
	if err != nil {
		return "", err
	}
	chooser.seeds, chooser.rounds = max(t.seeds/3, 1), t.rounds
	all := make([]*fitted, len(kinds))
	for k, kind := range kinds {
		if all[k], err = t.kind(ctx, kind.recurrent, chooser, data); err != nil {
			return "", err
		}
		for range 2 { // the first time warms up
			if all[k].duration, err = j.pace(ctx, all[k].nets[0], 2000); err != nil {
				return "", err
			}
		}
		t.note("%s: rate %g of %.4f and %.4f, %.4f unseen, %.1f ms an update, %v a decision", kind.name, all[k].rate, all[k].tuning, all[k].shares, all[k].unseen, 1e3*all[k].seconds, all[k].duration)
	}
	j.plain, j.summary = all[0].nets, all[1].nets

	var b strings.Builder
	fmt.Fprintf(&b, "Made by\n\n    go run ./experiments/recurrent\n\n%d rounds of %d nodes on clusters drawn from the training split, as many episodes each of %s, to learn from; %d updates of %d rounds (%d rows), Adam, %d training seeds. Explained: share of the variance of the taken actions' rewards on %d episodes of other clusters and seeds, by training seed. The rate is that of the highest progress on %d drawn clusters of their own, %d seeds each, by the first training seed.\n\n",
		t.episodes*t.rounds, fleet, strings.Join(presets, ", "), t.updates, batch, batch*fleet, t.trainings, len(data[2]), len(chooser.clusters), chooser.seeds)
	b.WriteString("| network | weights | learning rate |")
	for _, rate := range rates {
		fmt.Fprintf(&b, " progress and explained at %g |", rate)
	}
	b.WriteString(" explained | ms an update | µs to value a decision |\n|---|---|---|" + strings.Repeat("---|", len(rates)) + "---|---|---|\n")
	for k, f := range all {
		fmt.Fprintf(&b, "| %s | %d | %g |", kinds[k].name, len(f.nets[0].weights), f.rate)
		for i, progress := range f.tuning {
			fmt.Fprintf(&b, " %.4f, %.4f |", progress, f.shares[i])
		}
		for i, v := range f.unseen {
			fmt.Fprintf(&b, "%s %.4f", [...]string{"", ","}[min(i, 1)], v)
		}
		fmt.Fprintf(&b, " | %.1f | %.0f |\n", 1e3*f.seconds, float64(f.duration.Nanoseconds())/1e3)
	}
	gain := make([]float64, len(data[2]))
	for k := range all[0].missed {
		for e := range gain {
			gain[e] += (all[0].missed[k][e] - all[1].missed[k][e]) / float64(t.trainings)
		}
	}
	d := stats.Bootstrap([][]float64{gain})
	fmt.Fprintf(&b, "\nExplained with the summary less without it: %+.4f (%+.4f to %+.4f, over episodes).\n", d.Mean, d.Low, d.High)
	fmt.Fprintf(&b, "\nProgress (goodput over the state oracle's) of play by these values, paired: %d seeds of %d rounds on %d drawn clusters of the training split and heldout-8, mean over training seeds. Intervals are over the judged seeds.\n\n", t.seeds, t.rounds, t.drawn)
	b.WriteString("| conditions | model alone | the agent as deployed | row alone | row and summary | the summary's gain, 95% | by training seed | on heldout-8 |\n|---|---|---|---|---|---|---|---|\n")
	for _, name := range presets {
		if err := j.row(ctx, &b, name); err != nil {
			return "", err
		}
		t.note("%s", name)
	}
	return b.String(), nil
}

// kind trains the networks of a kind: the first seed at every rate, the others at the best one.
func (t *trial) kind(ctx context.Context, recurrent bool, chooser *judge, data [3][]*played) (*fitted, error) {
	f, best := &fitted{}, 0
	tried, err := t.fit(ctx, f, data[0], rates, func(_ int, rate float64) settings {
		return settings{recurrent: recurrent, seed: 1, updates: t.updates, rate: rate}
	})
	if err != nil {
		return nil, err
	}
	for k, n := range tried {
		progress, err := chooser.progress(ctx, n)
		if err != nil {
			return nil, err
		}
		_, share := explained(n, data[1])
		f.tuning, f.shares = append(f.tuning, progress), append(f.shares, share)
		if f.tuning[k] > f.tuning[best] {
			best = k
		}
	}
	f.rate = rates[best]
	others, err := t.fit(ctx, f, data[0], make([]float64, t.trainings-1), func(k int, _ float64) settings {
		return settings{recurrent: recurrent, seed: uint64(2 + k), updates: t.updates, rate: f.rate}
	})
	if err != nil {
		return nil, err
	}
	f.seconds /= float64(t.updates * (len(tried) + len(others)))
	for _, n := range append([]*network{tried[best]}, others...) {
		missed, share := explained(n, data[2])
		f.nets, f.unseen, f.missed = append(f.nets, n), append(f.unseen, share), append(f.missed, missed)
	}
	return f, nil
}

// fit trains a network for each of several settings, two at a time, and adds the time of each to the seconds of f.
func (t *trial) fit(ctx context.Context, f *fitted, data []*played, list []float64, of func(k int, rate float64) settings) ([]*network, error) {
	nets, failed := make([]*network, len(list)), make([]error, len(list))
	var group sync.WaitGroup
	slots, seconds := make(chan struct{}, 2), make([]float64, len(list))
	for k, rate := range list {
		group.Go(func() {
			slots <- struct{}{}
			begun := time.Now()
			nets[k], failed[k] = fit(ctx, of(k, rate), data)
			seconds[k] = time.Since(begun).Seconds()
			<-slots
		})
	}
	group.Wait()
	for _, s := range seconds {
		f.seconds += s
	}
	return nets, errors.Join(failed...)
}
