//go:build race

package main

func init() { slow = "the race detector" }
