package names_test

import (
	"fmt"

	"evenkeel/internal/names"
)

func Example() {
	fmt.Println(names.Distance("torchun", "torchrun"))
	fmt.Println(names.Nearest("stedy", []string{"steady", "drift"}))
	fmt.Println(names.Unknown("yml", [][]string{{"json"}, {"yaml", "yml"}}))
	// Output:
	// 1
	// steady
	// "yml"; did you mean yaml? (known: json, yaml)
}
