package run

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"evenkeel/agent"
	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/ddqn"
	"evenkeel/env"
)

// freeBatch is a run of the model's own updates on a cluster whose global batch is free,
// under gradients that call for a larger one.
func freeBatch(t *testing.T) *setup {
	t.Helper()
	const file = "workload: llama-3b-512-fp16\nglobal_batch: 8\nnodes:\n  - {device: a100-40g, count: 2, link: 1Gbps}\n  - {device: t4, count: 2, link: 1Gbps}\n"
	_, c, err := clusterfile.Read(strings.NewReader(file), "free.yaml", profile.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	c.Choices.LeastBatch, c.Choices.MostBatch = 4, 128
	spec := ddqn.Spec{Features: env.Features, Actions: len(env.Actions), Objectives: env.Objectives, Hidden: []int{1}}
	net, err := ddqn.NewNetwork(spec, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	none := make([]float32, env.Features) // no row is in range, so the model decides
	s := &setup{name: "free", cluster: c, given: c.Own(), trained: &agent.Trained{Network: net, Record: agent.Record{Low: none, High: none}}, seed: 1, rounds: 40}
	s.conditions.Conditions.Scale = cluster.NoiseScale{Start: 100, End: 100, Rounds: 1}
	s.weights.Speed = 1
	return s
}

// What the agent chose reaches the trainer's file, with the factor that goes with it.
func TestExportFreeBatch(t *testing.T) {
	s := freeBatch(t)
	for _, rule := range []string{"", export.Linear, export.Sqrt, export.AdaScale} {
		policy, _, control := s.start()
		var sizes []int
		for range s.rounds {
			round, err := control.Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sizes = round.Plan.Sizes
		}
		end := s.end(policy, sizes)
		got, err := export.FromRun(end, rule)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
		if got.GlobalBatch <= 8 || got.GlobalBatch != end.GlobalBatch || got.ReferenceBatch != 8 {
			t.Errorf("batch %d, chosen %d, reference %d", got.GlobalBatch, end.GlobalBatch, got.ReferenceBatch)
		}
		if rule == "" {
			rule = export.Sqrt
		}
		want, err := export.LearningRateFactor(rule, end.GlobalBatch, 8, end.NoiseScale)
		if err != nil || got.LearningRateScaling != rule || got.LearningRateFactor != want || want == 1 {
			t.Errorf("%v: %s %v, want %s %v", err, got.LearningRateScaling, got.LearningRateFactor, rule, want)
		}
	}
	if s.cluster.GlobalBatch != 8 {
		t.Errorf("the cluster's batch became %d", s.cluster.GlobalBatch)
	}
}

// A log's sizes and norms give the batch and the noise scale that the agent had.
func TestLogGivesBatchAndNoise(t *testing.T) {
	s := freeBatch(t)
	policy, _, control := s.start()
	norms := agent.NewObserver(s.cluster)
	for range s.rounds {
		round, err := control.Round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := export.ChosenBatch(s.cluster, round.Plan.Sizes); got != policy.GlobalBatch() {
			t.Fatalf("%d by the sizes, the agent's is %d", got, policy.GlobalBatch())
		}
		if got, want := norms.NoiseScale(), policy.NoiseScale(); got != want {
			t.Fatalf("noise scale %v by the reports, the agent's is %v", got, want)
		}
		norms.Add(round.Report)
	}
	for want, sizes := range map[int][]int{4: {1, 0, 0, 0}, 128: {200, 0, 0, 0}} {
		if got := export.ChosenBatch(s.cluster, sizes); got != want {
			t.Errorf("%v: %d, want %d", sizes, got, want)
		}
	}
}

// The summary, for people and machines, and the file of run --export agree.
func TestRunFreeBatch(t *testing.T) {
	s := freeBatch(t)
	w := &watch{app: cli.NewApp(t.Context(), os.Stdout, os.Stderr), setup: s, history: history{policy: "evenkeel"}, devices: map[string]*sizeHistory{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.references = s.compare(ctx) // none gets anywhere
	<-w.references.done
	if err := w.run(newQuietView(w)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sizes.json")
	r := &Cmd{}
	r.LRScaling = export.Linear
	if err := w.save(r, "json", path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sizes, err := export.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	d := w.document()
	if d.GlobalBatch != 8 || d.ChosenBatch != sizes.GlobalBatch || d.ChosenBatch <= 8 || sizes.LearningRateFactor != float64(d.ChosenBatch)/8 {
		t.Errorf("%+v\n%+v", d, sizes)
	}
	mentioned := func() bool {
		return slices.ContainsFunc(w.summary(), func(l string) bool { return strings.HasPrefix(l, "The global batch went from 8 to ") })
	}
	if !mentioned() {
		t.Errorf("%q", w.summary())
	}
	s.cluster.Choices = cluster.Choices{}
	if mentioned() || w.document().ChosenBatch != 0 {
		t.Error("a fixed batch is shown as chosen")
	}
}
