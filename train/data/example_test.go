package data_test

import (
	"fmt"

	"evenkeel/train/data"
)

func Example() {
	digits, err := data.Digits()
	if err != nil {
		panic(err)
	}
	training, held := data.Split(digits, 5) // every fifth is held out
	inputs, _, classes, _ := digits.Shape()
	fmt.Println(training.Len(), "to learn from,", held.Len(), "held out,", inputs, "inputs,", classes, "classes")
	// Output: 1438 to learn from, 359 held out, 64 inputs, 10 classes
}
