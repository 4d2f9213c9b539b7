// Package costmodel prices hybrid-parallel plans: seconds and bytes of every stage, term by term, from a layer profile, a
// cluster's topology and options. New makes a Model; Price prices stage configurations; Conditions are the cost functions
// of package search, one for each preset condition, and Stages turns a plan that the search found into stage
// configurations.
//
// Times of a layer are interpolated from its profile. Collectives take the cheaper of a ring over all replicas and a
// hierarchy within and then between machines; links cost latency plus bytes over bandwidth. Overlapped compute and
// communication slow each other down as in Galvatron's model.
package costmodel
