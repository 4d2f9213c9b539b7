package main

func Example() {
	main()
	// Output:
	// 92 steps, the first gives rank 0 6 samples
	// slowest rank over the mean: 1.003; padding: 0.6%; lost samples: 0
}
