package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/evenkeel/evenkeel/agent/internal/agenttest"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/sim"
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
