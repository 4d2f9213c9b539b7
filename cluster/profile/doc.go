// Package profile is the catalogue of measured device profiles: how long a micro-batch
// of a workload takes on a device, and how much memory it needs.
//
// Start from the embedded measurements, add the user's own, look a pair up (the Example is
// the whole program):
//
//	c := profile.Embedded()
//	err := c.Add("my-profiles.csv")                 // file, line and field of every fault
//	p, err := c.Lookup("a10g", "llama-3b-512-fp16") // an unknown name: *UnknownError with the nearest
//
// A profile answers four questions, without allocation and safely from many goroutines:
//
//	p.Seconds(12)           // forward + backward of 12 samples
//	p.Samples(1.5)          // the samples that 1.5 seconds are enough for
//	p.MemoryLimit(20 << 30) // the largest micro-batch in 20 GiB; NoLimit if not measured
//	p.PerSample()           // seconds that one more sample costs
//
// Between measured points the curve is linear after smoothing. Extrapolated says where it is extrapolated; Fit and Report
// measure the quality of the points.
//
// Devices and workloads have a Split: whole devices and whole models are held out of
// training, so that tests on them measure generalisation.
//
// The file format, the rules of interpolation and the split are described in
// docs/reference/formats/profile.md, the origin of the embedded figures in catalogue/SOURCES.md.
package profile
