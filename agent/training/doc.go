// Package training trains a policy offline, on the simulator.
//
//	trainer, err := training.NewTrainer(profile.Embedded(), training.Config{Seed: 1})
//	err = trainer.Run(ctx, func(p training.Progress) { ... })
//	err = trainer.Trained().Save("policy.safetensors")
//
// A run that is interrupted goes on from a checkpoint, to the same bits:
//
//	err = trainer.SaveCheckpoint("checkpoint.evenkeel")
//	trainer, err = training.LoadCheckpoint(profile.Embedded(), "checkpoint.evenkeel")
//
// See the Example.
package training
