// Package calibration finds what a layer profile and a cluster file leave out of the price of plans, from plans that were measured: how
// much slower devices and links are in training, and what memory a device takes beside the model. Load reads measured plans, New finds
// the calibration, Open reads one, and File.Of gives it to a job's options.
package calibration
