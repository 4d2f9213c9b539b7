package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"evenkeel/cluster"
	"evenkeel/cluster/sim"
	"evenkeel/internal/agenttest"
)

// A policy that fails for any other reason stops the run.
type broken struct{}

var errBroken = errors.New("broken")

func (broken) Decide(*cluster.Report, []bool, *cluster.Plan) error { return errBroken }

func TestControlPassesErrorsOn(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	s := sim.New(c, cluster.Conditions{}, 1)
	ctl := Control{Cluster: c, Runner: s, Policy: broken{}}
	if _, err := ctl.Round(context.Background()); !errors.Is(err, errBroken) {
		t.Errorf("%v, want %v", err, errBroken)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ctl.Policy = NewModel(c)
	if _, err := ctl.Round(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// When the nodes that are left cannot make up the batch, each gets an even part as far as
// its micro-batches go, at least one; the absent nothing.
func TestControlInAShortage(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1, 0.1)
	c.Nodes[0].Shapes, c.Nodes[1].Shapes = []int{7}, []int{20}
	for _, x := range []struct {
		present []bool
		want    []int
	}{{[]bool{true, false, false}, []int{28, 0, 0}}, {[]bool{true, true, true}, []int{7, 20, 10}}} {
		ctl := Control{Cluster: c, Runner: nodes(x.present), Policy: refuses{}}
		r, err := ctl.Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Plan.Sizes, x.want) {
			t.Errorf("present %v: sizes %v, want %v", x.present, r.Plan.Sizes, x.want)
		}
	}
}

// nodes is a runner of rounds without a result; it says which nodes are present.
type nodes []bool

func (n nodes) Present() []bool { return n }

func (nodes) Round(context.Context, cluster.Plan) (*cluster.Report, error) {
	return &cluster.Report{}, nil
}

// refuses is a policy that cannot place the batch.
type refuses struct{}

func (refuses) Decide(*cluster.Report, []bool, *cluster.Plan) error {
	return fmt.Errorf("test: %w", cluster.ErrCapacity)
}

// Only the policy's time counts as the decision's.
func TestControlMeasuresDecisions(t *testing.T) {
	c := agenttest.Lines(t, 30, 0.1, 0.1)
	now := time.Unix(0, 0)
	ctl := Control{Cluster: c, Runner: sim.New(c, cluster.Conditions{}, 1), Policy: NewModel(c)}
	r, err := ctl.Round(context.Background())
	if err != nil || r.Decision != 0 {
		t.Errorf("without a clock: %v, %v", r.Decision, err)
	}
	ctl.Clock = func() time.Time {
		now = now.Add(3 * time.Millisecond)
		return now
	}
	if r, err = ctl.Round(context.Background()); err != nil || r.Decision != 3*time.Millisecond {
		t.Errorf("decision took %v, %v", r.Decision, err)
	}
}
