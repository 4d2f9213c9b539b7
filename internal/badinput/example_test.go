package badinput_test

import (
	"errors"
	"fmt"

	"evenkeel/internal/badinput"
)

func Example() {
	err := fmt.Errorf("cluster.yaml:3: %w", badinput.New("unknown device"))
	var bad interface{ BadInput() bool }
	fmt.Println(err, errors.As(err, &bad) && bad.BadInput())
	// Output: cluster.yaml:3: unknown device true
}
