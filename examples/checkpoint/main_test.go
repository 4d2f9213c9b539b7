package main

func Example() {
	main()
	// Output:
	// from step 0, head[0] = 0
	// from step 5, head[0] = 5
}
