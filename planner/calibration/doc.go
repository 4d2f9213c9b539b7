// Package calibration corrects the prices of plans by plans that were measured: how much slower devices and links are in training than
// their profile says, and how much memory a device takes beside the model. Load reads measured plans, New finds the calibration, Open
// reads a calibration file, and File.Of gives it to a job's options.
package calibration
