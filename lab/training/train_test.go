package training

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/cluster/profile"
	"evenkeel/internal/agenttest"
	"evenkeel/internal/badinput"
)

// small is a training run of a few seconds.
var small = Config{Seed: 7, Steps: 1200, Envs: 16, Updates: 2, Hidden: []int{16}}

func TestSameSeedSamePolicy(t *testing.T) {
	var got [2][]byte
	for i := range got {
		trainer, err := NewTrainer(profile.Embedded(), small)
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Run(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		got[i] = agenttest.PolicyBytes(t, trainer.Trained().Save)
	}
	if !bytes.Equal(got[0], got[1]) {
		t.Fatal("two runs of one seed gave different policies")
	}
}

func TestResumeGivesTheSameBits(t *testing.T) {
	whole, err := NewTrainer(profile.Embedded(), small)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Run(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "checkpoint.evenkeel")
	trainer, err := NewTrainer(profile.Embedded(), small)
	if err != nil {
		t.Fatal(err)
	}
	for _, stop := range []int{480, 960} {
		ctx, cancel := context.WithCancel(context.Background())
		err = trainer.Run(ctx, func(p Progress) {
			if p.Steps >= stop {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted run: %v", err)
		}
		if err := trainer.SaveCheckpoint(path); err != nil {
			t.Fatal(err)
		}
		if trainer, err = LoadCheckpoint(profile.Embedded(), path); err != nil {
			t.Fatal(err)
		}
	}
	if err := trainer.Run(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(agenttest.PolicyBytes(t, whole.Trained().Save), agenttest.PolicyBytes(t, trainer.Trained().Save)) {
		t.Fatal("an interrupted and resumed run gave another policy")
	}
}

func TestCheckpointRefusesDamage(t *testing.T) {
	trainer, err := NewTrainer(profile.Embedded(), small)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "checkpoint.evenkeel")
	if err := trainer.SaveCheckpoint(path); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty": nil, "truncated": good[:len(good)/2], "short header": good[:100],
		"flipped": append(append([]byte{}, good[:200]...), append([]byte{good[200] ^ 1}, good[201:]...)...),
		"longer":  append(append([]byte{}, good...), 0),
		"older":   append([]byte("EKTRAIN3"), good[8:]...),
	} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadCheckpoint(profile.Embedded(), path); !errors.Is(err, errCheckpoint) || !badinput.Is(err) {
			t.Errorf("%s: %v, want errCheckpoint", name, err)
		} else if name == "older" && !strings.Contains(err.Error(), "version 3, this program reads version 4; finish") {
			t.Errorf("an older version: %v", err)
		}
	}
}
