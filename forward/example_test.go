package forward_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"evenkeel/forward"
	"evenkeel/train"
	"evenkeel/train/data"
)

// Eight processors in one process train a network on handwritten digits, and write the log from which anybody can make the
// weights again.
func Example() {
	net, err := train.MLP(64, 16, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	digits, err := data.Digits()
	if err != nil {
		fmt.Println(err)
		return
	}
	training, held := data.Split(digits, 5)
	c := forward.Config{
		Estimator:  forward.Paired,
		Processors: 8, Directions: 4, Key: 1, Steps: 600,
		Epsilon: 1e-3, LearningRate: 0.02, Schedule: "cosine", Examples: []int{16, 16, 16, 16}, Clip: 3, Guard: true,
	}
	start := forward.NewWeights(net, c.Key)
	header := forward.NewHeader(c, forward.Examples{Count: training.Len()}, forward.FromKey, start)
	encoded, err := header.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	log := bytes.NewBuffer(encoded) // a log is the header and the blocks
	memory := forward.NewMemory()
	processors, errs := make([]*forward.Processor, c.Processors), make([]error, c.Processors)
	var all sync.WaitGroup
	for rank := range processors {
		replica, err := forward.NewReplica(encoded, start.Clone())
		if err != nil {
			fmt.Println(err)
			return
		}
		p := &forward.Processor{Replica: replica, Rank: rank, Model: forward.NewModel(net), Data: training, Bus: memory.Reader(rank), Patience: time.Hour}
		if rank == 0 {
			p.OnBlock = func(_ *forward.Block, encoded []byte) error { _, err := log.Write(encoded); return err }
		}
		processors[rank] = p
		all.Go(func() { errs[rank] = p.Run(context.Background()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
		return
	}
	accuracy, _, err := forward.Evaluate(net, processors[0].Weights, held)
	fmt.Println("more than half right:", accuracy > 0.5, err)
	fmt.Println("sent by a processor in a step:", processors[0].Stats().Sent/int64(c.Steps), "bytes")

	reader, err := forward.NewLogReader(log)
	if err != nil {
		fmt.Println(err)
		return
	}
	replayed, err := reader.Header.Drawn()
	if err != nil {
		fmt.Println(err)
		return
	}
	done, err := forward.Replay(reader, replayed, 0)
	fmt.Println(done.Steps(), "steps replayed to the same weights:", replayed.Hash() == processors[3].Weights.Hash(), err)
	// Output:
	// more than half right: true <nil>
	// sent by a processor in a step: 16 bytes
	// 600 steps replayed to the same weights: true <nil>
}

// A processor with other weights than the run's is refused, and the first tensor that differs is named.
func ExampleNewReplica() {
	net, err := train.MLP(4, 3, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := forward.Config{Processors: 2, Estimator: forward.Paired, Directions: 1, Steps: 10, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "cosine", Examples: []int{8}}
	header := forward.NewHeader(c, forward.Examples{Count: 100}, forward.FromKey, forward.NewWeights(net, 1))
	encoded, err := header.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = forward.NewReplica(encoded, forward.NewWeights(net, 2))
	fmt.Println(errors.Is(err, forward.ErrWeights))
	// Output:
	// true
}

// A configuration that cannot be is refused as a whole, with all that is wrong.
func ExampleConfig_Validate() {
	c := forward.Config{
		Estimator:  forward.Paired,
		Processors: 3, Directions: 1, Steps: 10, Epsilon: 1e-3, LearningRate: 0.01, Schedule: "cosine", Examples: []int{8},
	}
	err := c.Validate()
	fmt.Println(errors.Is(err, forward.ErrConfig))
	fmt.Println(err)
	// Output:
	// true
	// forward: invalid run: processors is 3; an even number from 2 to 128, as they work in pairs
}

// Frames and logs of others are checked before they count.
func ExampleDecodeFrame() {
	_, err := forward.DecodeFrame([]byte("too short"))
	fmt.Println(errors.Is(err, forward.ErrFrame))
	_, err = forward.NewLogReader(bytes.NewReader(make([]byte, 100)))
	fmt.Println(errors.Is(err, forward.ErrLog))
	// Output:
	// true
	// true
}
