package main

func Example() {
	main()
	// Output:
	// 90 steps, the first gives rank 0 18 samples
	// slowest rank over the mean: 1.001; padding: 0.5%; lost samples: 0
}
