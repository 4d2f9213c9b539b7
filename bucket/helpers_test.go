package bucket

import "evenkeel/bucket/internal/invented"

func with(mixing float64) *float64 { return &mixing }

// capped holds a number of padded tokens.
type capped struct {
	invented.Formula
	limit int
}

func (c capped) Cap(l int) int { return c.limit / l }
