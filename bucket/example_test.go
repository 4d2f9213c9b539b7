package bucket_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/bucket"
	"github.com/evenkeel/evenkeel/bucket/stepcost"
)

// table is what a profiler measured: seconds and peak bytes of a training step by length and batch size. The last trial ran
// out of memory.
const table = `length,batch,seconds,peak_bytes
10,1,0.11,100
10,4,0.14,400
10,8,0.18,800
20,1,0.12,200
20,4,0.18,800
40,1,0.14,400
40,2,0.18,800
40,4,,
`

// A plan for two ranks, one twice as fast as the other; the schedule of its first epoch; and what that costs.
func Example() {
	lengths, err := bucket.ReadLengths(strings.NewReader(strings.Repeat("10\n20\n40\n", 40)), "lengths.txt", bucket.LengthsOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	trials, err := stepcost.ReadTable(strings.NewReader(table), "table.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	cost, err := stepcost.New(trials, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := bucket.Make(lengths, cost, bucket.Config{Speeds: []float64{1, 2}})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule := plan.Schedule(lengths, 1, 0) // seed 1, epoch 0
	for _, batch := range schedule.Step(0) {
		fmt.Printf("rank %d: %d samples\n", batch.Rank, len(schedule.Samples(batch)))
	}
	score, err := bucket.Judge(lengths, schedule.All(), cost, plan.Speeds, plan.Limit, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d steps in %.2f s; no schedule takes less than %.2f s\n", score.Steps, score.EpochSeconds, plan.LowerBoundSeconds)
	fmt.Println(score.Lost, "lost,", score.Repeated, "repeated,", score.OutOfMemory, "out of memory")
	// Output:
	// rank 0: 4 samples
	// rank 1: 4 samples
	// rank 1: 4 samples
	// 12 steps in 2.14 s; no schedule takes less than 2.10 s
	// 0 lost, 0 repeated, 0 out of memory
}

// flat is a cost of one's own: no table is needed where a formula is known.
type flat struct{}

func (flat) Seconds(length, batch int) float64 { return 0.1 + 1e-3*float64(length*batch) }
func (flat) Cap(length int) int                { return 100 / length }
func (flat) Breaks(int) []int                  { return nil } // Seconds is a straight line in the batch

// A cost of one's own, buckets of equal counts, and each of the modes of dispatch.
func ExampleMake() {
	lengths := slices.Repeat(bucket.Lengths{5, 10, 25, 50}, 100)
	for _, mode := range []string{bucket.Same, bucket.Mixed, bucket.Sorted} {
		plan, err := bucket.Make(lengths, flat{}, bucket.Config{Ranks: 4, Mode: mode, Rule: bucket.EqualCount, Overlong: bucket.Refuse})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %.3f of the lower bound\n", mode, plan.EpochSeconds/plan.LowerBoundSeconds)
	}
	// Output:
	// same: 1.056 of the lower bound
	// mixed: 1.022 of the lower bound
	// sorted: 1.012 of the lower bound
}

// A job that stopped goes on with the step after its last one.
func ExamplePlan_Resume() {
	lengths := slices.Repeat(bucket.Lengths{5, 10, 25, 50}, 100)
	plan, err := bucket.Make(lengths, flat{}, bucket.Config{Ranks: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := plan.State(1, 3, 20) // seed 1, epoch 3, 20 steps done; a few numbers to be kept as JSON
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule, from, err := plan.Resume(lengths, state)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("go on with step", from, "of", schedule.Len())
	// Output:
	// go on with step 20 of 45
}

// The schedule as a file of JSON Lines, which a training job in any language can read.
func ExampleWriteSchedule() {
	lengths := bucket.Lengths{5, 10, 25, 50}
	plan, err := bucket.Make(lengths, flat{}, bucket.Config{Ranks: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule := plan.Schedule(lengths, 1, 0)
	header, err := plan.Header(schedule, 1, 0, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := bucket.WriteSchedule(os.Stdout, header, schedule); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"format":"evenkeel-schedule","version":1,"samples":4,"ranks":1,"data":"158a2f0239bca964","plan":"91f3a18d4b8d855b","seed":1,"epoch":0,"from":0,"steps":3,"skipped":0,"limit":50}
	// {"step":0,"rank":0,"weight":1,"samples":[3]}
	// {"step":1,"rank":0,"weight":1,"samples":[0,1]}
	// {"step":2,"rank":0,"weight":1,"samples":[2]}
	// {"end":true,"crc32":"43319c05"}
}
