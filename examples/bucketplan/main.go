// Command bucketplan batches samples of unequal lengths for four ranks: from lengths and
// measured seconds of training steps to a plan, an epoch of batches, and its score.
package main

import (
	"fmt"
	"log"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/stepcost"
)

// table holds measured training steps: length and number of samples of a batch, its
// seconds, its peak of memory. evenkeel.bucket.profile in Python records one.
const table = `length,batch,seconds,peak_bytes
64,1,0.010,1000000000
64,64,0.070,2600000000
256,1,0.014,1100000000
256,16,0.078,2700000000
1024,1,0.030,1500000000
1024,4,0.090,3100000000
`

func main() {
	var lengths bucket.Lengths // of 4,000 samples, by position in the data set
	for i := range 4000 {
		lengths = append(lengths, uint32(32+i*i%993))
	}
	measured, err := stepcost.ReadTable(strings.NewReader(table), "table.csv")
	if err != nil {
		log.Fatal(err)
	}
	cost, err := stepcost.New(measured, 4e9) // 4 GB of memory
	if err != nil {
		log.Fatal(err)
	}
	plan, err := bucket.Make(lengths, cost, bucket.Config{Ranks: 4})
	if err != nil {
		log.Fatal(err)
	}
	epoch := plan.Schedule(lengths, 1, 0) // seed, epoch
	score, err := bucket.Judge(lengths, epoch.All(), cost, plan.Speeds, plan.Limit)
	if err != nil {
		log.Fatal(err)
	}
	first := epoch.Samples(epoch.Step(0)[0]) // of rank 0
	fmt.Printf("%d steps, the first gives rank 0 %d samples\n", score.Steps, len(first))
	fmt.Printf("slowest rank over the mean: %.3f; padding: %.1f%%; lost samples: %d\n", score.Imbalance, 100*score.Padding, score.Lost)
}
