package main

// planCmd runs plans.
type planCmd struct {
	Run  planRunCmd  `cmd:"" help:"Train a small network by a plan: stages as processes, joined by mutual TLS."`
	Keys planKeysCmd `cmd:"" help:"Make the certificates by which the stages of a run know each other."`
}
