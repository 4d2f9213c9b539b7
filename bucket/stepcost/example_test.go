package stepcost_test

import (
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
