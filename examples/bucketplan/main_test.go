package main

func Example() {
	main()
	// Output:
	// 91 steps, the first gives rank 0 5 samples
	// slowest rank over the mean: 1.005; padding: 0.7%; lost samples: 0
}
