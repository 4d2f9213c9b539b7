package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/lengths"
	"github.com/evenkeel/evenkeel/cluster/sim"
	"github.com/evenkeel/evenkeel/env"
)

// meter adds up the work of a simulation; a blind one does not report what samples cost.
type meter struct {
	*sim.Simulator
	blind bool
	work  float64 // in mean samples
}

func (m *meter) Round(ctx context.Context, plan cluster.Plan) (*cluster.Report, error) {
	r, err := m.Simulator.Round(ctx, plan)
	if err != nil {
		return nil, err
	}
	if r.Cost > 0 {
		m.work += r.Cost
	} else {
		m.work += float64(r.Accepted)
	}
	if m.blind {
		r.Cost = 0
		for i := range r.Nodes {
			r.Nodes[i].Cost = 0
		}
	}
	return r, nil
}

// watch is a belief under the model's own updates, which tells when it sees a shift.
type watch struct {
	tracker *env.Tracker
	rows    []float32
	actions []int
	perf    []cluster.Performance
	last    int // column of the nearness of the last jump
	fresh   int // column of whether there was a measurement
}

func newWatch(c *cluster.Cluster) *watch {
	n := len(c.Nodes)
	return &watch{
		tracker: env.NewTracker(c), actions: make([]int, n), perf: make([]cluster.Performance, n),
		last: slices.Index(env.FeatureNames, "nearness of the last jump"), fresh: slices.Index(env.FeatureNames, "measured in the last round"),
	}
}

// see takes in a round: how many nodes were measured, and how many of them seemed to have
// changed their speed.
func (w *watch) see(r *cluster.Report) (jumps, nodes float64) {
	w.tracker.Observe(r)
	w.rows = w.tracker.Rows(w.rows, [env.Objectives]float64{1})
	for i := range w.actions {
		row := w.rows[i*env.Features:]
		if row[w.fresh] == 1 {
			nodes++
			if row[w.last] == 1 {
				jumps++
			}
		}
	}
	w.tracker.Model(w.actions)
	w.tracker.Apply(w.actions, w.perf)
	return jumps, nodes
}

// sources are the columns whose sum is a sample's length.
var sources = []struct {
	name, file string
	columns    []string
}{
	{"azure-conversations", "azure_llm_conv_tokens.csv", []string{"context_tokens", "generated_tokens"}},
	{"gsm8k", "gsm8k_words.csv", []string{"question_words", "answer_words"}},
	{"multi30k", "multi30k_en_de_words.csv", []string{"en_tokens", "de_tokens"}},
	{"speech", "speech_utterance_seconds.csv", []string{"seconds"}},
}

// derive writes the embedded table from the measurements.
func derive(data, out string) error {
	var b strings.Builder
	b.WriteString("name,length\n")
	for _, s := range sources {
		values, err := read(filepath.Join(data, "lengths", s.file), s.columns)
		if err != nil {
			return err
		}
		for _, v := range lengths.Compress(values) {
			fmt.Fprintf(&b, "%s,%v\n", s.name, v)
		}
	}
	return os.WriteFile(out, []byte(b.String()), 0o644)
}

// read sums the columns of every row.
func read(path string, columns []string) ([]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(rows) < lengths.Bins {
		return nil, errors.New(path + ": fewer rows than values to make")
	}
	sums := make([]float64, len(rows)-1)
	for _, name := range columns {
		k := slices.Index(rows[0], name)
		if k < 0 {
			return nil, fmt.Errorf("%s: no column %s", path, name)
		}
		for i, row := range rows[1:] {
			v, err := strconv.ParseFloat(row[k], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: row %d: %w", path, i+2, err)
			}
			sums[i] += v
		}
	}
	return sums, nil
}
