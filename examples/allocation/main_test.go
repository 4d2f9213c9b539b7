package main

func Example() {
	main()
	// Output:
	// new    57 samples, done after 0.248 s
	// old    23 samples, done after 0.250 s
	// shared 16 samples, done after 0.242 s
	// round  96 samples, 0.250 s
}
