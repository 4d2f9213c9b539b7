package parallel

import (
	"errors"
	"testing"
)

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		called := make([]int, n)
		if err := Each(n, func(k int) error { called[k]++; return nil }); err != nil {
			t.Fatal(err)
		}
		for k, times := range called {
			if times != 1 {
				t.Errorf("%d was called %d times", k, times)
			}
		}
	}
	first, second := errors.New("first"), errors.New("second")
	last := 0
	err := Each(100_000, func(k int) error {
		switch k {
		case 0:
			return first
		case 1:
			return second
		case 99_999:
			last++
		}
		return nil
	})
	if !errors.Is(err, first) || last > 0 {
		t.Errorf("%v; the last call began %d times", err, last)
	}
}
