package stepcost_test

import (
	"context"
	"fmt"
	"strings"

	"evenkeel/bucket/stepcost"
)

// A model of the step from a table.
func Example() {
	table, err := stepcost.ReadTable(strings.NewReader(stepcost.TableHeader+"\n10,1,0.11,100\n10,8,0.18,800\n40,1,0.14,400\n40,4,,\n"), "table.csv")
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := stepcost.New(table, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("4 samples of length 10: %.2f s\n", model.Seconds(10, 4))
	fmt.Println("most samples of length 10:", model.Cap(10))
	// Output:
	// 4 samples of length 10: 0.14 s
	// most samples of length 10: 8
}

// step runs a step of a machine.
func step(_ context.Context, length, _, batch int) (stepcost.Trial, error) {
	return stepcost.Trial{Seconds: 0.1 + 1e-3*float64(length*batch), OutOfMemory: length*batch > 1000}, nil
}

// The table of a machine, measured by running steps on it: here the largest batch that fits, for two lengths.
func ExampleProfile() {
	table, err := stepcost.Profile(context.Background(), step, stepcost.Profiling{Lengths: []int{10, 50}, Trials: 12})
	if err != nil {
		fmt.Println(err)
		return
	}
	largest := map[int]int{}
	for _, t := range table {
		if !t.OutOfMemory {
			largest[t.Length] = max(largest[t.Length], t.Batch)
		}
	}
	fmt.Println(largest)
	// Output:
	// map[10:100 50:20]
}
