package bucket

// Cost predicts a step of one rank of speed 1.
type Cost interface {
	// Seconds of a batch of that many samples padded to length.
	Seconds(length, batch int) float64
	// Cap is the largest batch of that length that fits into memory; 0: none. A longer
	// sample's is no larger.
	Cap(length int) int
	// Breaks are batch sizes, rising, between which Seconds of that length is a straight
	// line in the batch; none where it is one from 1 to Cap. By them the most efficient
	// batch is found exactly.
	Breaks(length int) []int
}
