package training

import (
	"context"
	"runtime"
	"testing"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/internal/race"
)

// The embedded policy is what this code trains: a run of its configuration has the same networks after its first updates,
// which depend on the drawn clusters, simulator, belief, observation, rewards and targets.
func TestEmbeddedPolicyIsOfThisCode(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the simulator's exponentials are those of the processor that the policy was trained on")
	}
	if race.Enabled {
		t.Skip("TestSameSeedSamePolicy trains under the race detector")
	}
	embedded, err := agent.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := NewTrainer(profile.Embedded(), Config(embedded.Record.Config))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := trainer.Run(ctx, func(p Progress) {
		if p.Updates > 0 {
			cancel()
		}
	}); ctx.Err() == nil {
		t.Fatalf("it ended before its first update: %v", err)
	}
	if got, want := trainer.Trained().Record.First, embedded.Record.First; got != want || len(got) != 16 {
		t.Errorf("after the first updates the networks are %s, the embedded policy's were %s: train it anew (evenkeel train), and its tables", got, want)
	}
}
