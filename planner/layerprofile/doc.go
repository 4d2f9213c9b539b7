// Package layerprofile reads, checks, interpolates and writes layer profiles: seconds, bytes and parameters of each layer
// of a model, measured by device, tensor-parallel degree and micro-batch. See the Example, and docs/reference/formats/layer-profile.md for the files.
package layerprofile
