package main

func Example() {
	main()
	// Output:
	// 93 steps, the first gives rank 0 6 samples
	// slowest rank over the mean: 1.002; padding: 0.6%; lost samples: 0
}
