package bucket_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/bucket/stepcost"
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
	lengths, err := lengthfile.Read(strings.NewReader(strings.Repeat("10\n20\n40\n", 40)), "lengths.txt", lengthfile.Options{})
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
	score, err := bucket.Judge(lengths, schedule.All(), cost, plan.Speeds, plan.Limit)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d steps in %.2f s; no schedule takes less than %.2f s\n", score.Steps, score.EpochSeconds, plan.LowerBoundSeconds)
	fmt.Println(score.Lost, "lost,", score.Repeated, "repeated,", score.OutOfMemory, "out of memory")
	// Output:
	// rank 0: 4 samples
	// rank 1: 8 samples
	// rank 1: 2 samples
	// 12 steps in 2.16 s; no schedule takes less than 2.10 s
	// 0 lost, 0 repeated, 0 out of memory
}

// flat is a cost of one's own: no table is needed where a formula is known.
type flat struct{}

func (flat) Seconds(length, batch int) float64 { return 0.1 + 1e-3*float64(length*batch) }
func (flat) Cap(length int) int                { return 100 / length }

// A job that stopped goes on with the step after its last one, on as many ranks or on others.
func ExamplePlan_Resume() {
	lengths := slices.Repeat(bucket.Lengths{5, 10, 25, 50}, 100)
	plan, err := bucket.Make(lengths, flat{}, bucket.Config{Ranks: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	header := plan.Header(plan.Schedule(lengths, 1, 3), 1, 3, 0) // seed 1, epoch 3
	state := header.State(20)                                    // after 20 steps; a few numbers to be kept as JSON
	for ranks := 2; ranks <= 3; ranks++ {                        // as many as before, or one more
		schedule, from, err := plan.Resume(lengths, state, slices.Repeat([]float64{1}, ranks))
		if err != nil {
			fmt.Println(err)
			return
		}
		header = plan.Header(schedule, 1, 3, from)
		fmt.Println(ranks, "ranks go on with step", from, "of", header.Steps)
	}
	// Output:
	// 2 ranks go on with step 20 of 45
	// 3 ranks go on with step 20 of 37
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
	header := plan.Header(schedule, 1, 0, 0)
	if err := bucket.WriteSchedule(os.Stdout, header, schedule); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"format":"evenkeel-schedule","version":1,"samples":4,"ranks":1,"data":"158a2f0239bca964","plan":"c1de488664e0cff6","seed":1,"epoch":0,"from":0,"steps":2,"skipped":0,"limit":50,"idle":0,"single":true}
	// {"step":0,"rank":0,"weight":1,"token_weight":0.3333333333333333,"samples":[0,1]}
	// {"step":1,"rank":0,"weight":1,"token_weight":1.6666666666666667,"samples":[2,3]}
	// {"end":true,"crc32":"6cbbb76b"}
}

// A plan file that was read needs its lengths.
func ExampleReadPlan() {
	lengths := bucket.Lengths{5, 10, 25, 50}
	table, err := stepcost.ReadTable(strings.NewReader(stepcost.TableHeader+"\n10,1,0.1,\n50,1,0.2,\n50,2,0.3,\n"), "table.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	cost, err := stepcost.New(table, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := bucket.Make(lengths, cost, bucket.Config{Ranks: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	var file bytes.Buffer // bucket.Schema() is its JSON schema
	if err := made.Write(&file); err != nil {
		fmt.Println(err)
		return
	}
	plan, err := bucket.ReadPlan(&file, "plan.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Bind(bucket.Lengths{1, 2, 3, 4})) // others than the plan's
	if err := plan.Bind(lengths); err != nil {
		fmt.Println(err)
		return
	}
	err = plan.Schedule(lengths, 1, 0).Lines(0, func(l bucket.Line) error {
		fmt.Println("step", l.Step, "rank", l.Rank, "samples", l.Samples)
		return nil
	})
	fmt.Println(err, len(bucket.Schema()) > 0)
	// Output:
	// the lengths are not those of the plan (4 samples with checksum 158a2f0239bca964; these are 4 with 6fc1ebd4f4d6ea31): plan anew with these lengths
	// step 0 rank 0 samples [0 1]
	// step 0 rank 1 samples [2 3]
	// <nil> true
}

// A cost of one's own, and what mixing costs.
func ExampleMake() {
	var lengths bucket.Lengths
	for i := range uint32(4000) {
		lengths = append(lengths, 1+i%50)
	}
	for _, mixing := range []float64{0, bucket.DefaultMixing, .1} {
		plan, err := bucket.Make(lengths, flat{}, bucket.Config{Ranks: 4, Mixing: &mixing})
		if err != nil {
			fmt.Println(err)
			return
		}
		again, _ := plan.Recurrence(lengths, 1, 0)
		fmt.Printf("mixing %v: %.2f of the lower bound, %.0f%% of the pairs in a step meet again\n", mixing, plan.EpochSeconds/plan.LowerBoundSeconds, 100*again)
	}
	// Output:
	// mixing 0: 1.00 of the lower bound, 16% of the pairs in a step meet again
	// mixing 0.01: 1.01 of the lower bound, 10% of the pairs in a step meet again
	// mixing 0.1: 1.05 of the lower bound, 2% of the pairs in a step meet again
}
