package task_test

import (
	"context"
	"errors"
	"fmt"

	"evenkeel/train"
	"evenkeel/train/task"
)

func Example() {
	t := task.Task{Data: task.Digits, Model: task.Convnet, MicroBatches: []int{32, 16}, Seed: 1}.WithDefaults()
	s, err := t.Build() // network, data and a trainer's configuration
	if err != nil {
		panic(err)
	}
	trainer, err := train.New(s.Network, s.Training, s.Config)
	if err != nil {
		panic(err)
	}
	if _, err := trainer.Step(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(trainer.Samples(), "samples seen,", s.Held.Len(), "held out")
	// Output: 48 samples seen, 179 held out
}

// What is wrong with a description is told all at once.
func ExampleTask_Validate() {
	t := task.Task{Data: task.Digits, Model: task.MLP, Size: -1}.WithDefaults()
	fmt.Println(errors.Is(t.Validate(), task.ErrTask))
	// Output: true
}
