// Package layerprofile reads, checks, merges, interpolates and writes layer profiles: the seconds, bytes and parameters of each layer
// of a model, measured for each device, tensor degree and micro-batch. See the Example; docs/reference/formats/layer-profile.md
// describes the files.
package layerprofile
