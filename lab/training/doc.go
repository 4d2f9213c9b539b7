// Package training trains a policy on the simulator.
//
//	trainer, err := training.NewTrainer(profile.Embedded(), training.Config{Seed: 1})
//	err = trainer.Run(ctx, func(p training.Progress) { ... })
//	err = trainer.Trained().Save("policy.safetensors")
//
// An interrupted run continues from a checkpoint and ends with the same bits:
//
//	err = trainer.SaveCheckpoint("checkpoint.evenkeel")
//	trainer, err = training.LoadCheckpoint(profile.Embedded(), "checkpoint.evenkeel")
//
// See the Example.
package training
