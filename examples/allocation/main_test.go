package main

func Example() {
	main()
	// Output:
	// new    150 samples in 10 micro-steps of up to 16, done after 0.620 s
	// old     59 samples in  8 micro-steps of up to  8, done after 0.610 s
	// shared  47 samples in 12 micro-steps of up to  4, done after 0.614 s
	// round  256 samples, 0.620 s
}
