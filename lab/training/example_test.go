package training_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"evenkeel/agent"
	"evenkeel/cluster/profile"
	"evenkeel/lab/training"
)

// A training run, far too short to learn anything, is interrupted and resumed.
func Example() {
	dir, err := os.MkdirTemp("", "training")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	trainer, err := training.NewTrainer(profile.Embedded(), training.Config{Seed: 1, Steps: 8, Envs: 2, Hidden: []int{8}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(context.Background())
	err = trainer.Run(ctx, func(p training.Progress) {
		if p.Steps == 4 {
			interrupt()
		}
	})
	fmt.Println(err)
	checkpoint := filepath.Join(dir, "checkpoint.evenkeel")
	if err := trainer.SaveCheckpoint(checkpoint); err != nil {
		log.Fatal(err)
	}
	if trainer, err = training.LoadCheckpoint(profile.Embedded(), checkpoint); err != nil {
		log.Fatal(err)
	}
	if err := trainer.Run(context.Background(), func(p training.Progress) {
		fmt.Printf("%d of %d steps\n", p.Steps, p.Total)
	}); err != nil {
		log.Fatal(err)
	}
	policy := filepath.Join(dir, "policy.safetensors")
	if err := trainer.Trained().Save(policy); err != nil {
		log.Fatal(err)
	}
	loaded, err := agent.Load(policy)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("trained with seed %d\n", loaded.Record.Config.Seed)
	// Output:
	// context canceled
	// 6 of 8 steps
	// 8 of 8 steps
	// trained with seed 1
}
