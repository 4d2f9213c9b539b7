package main

import (
	"errors"
	"math/rand/v2"
	"slices"

	"evenkeel/cluster"
)

// bisection is the allocation without any thought of speed: the latest finish time at which
// no more than the global batch is done, by halving, then one sample at a time to who
// finishes first with it. For clusters in which all nodes take part.
func bisection(c *cluster.Cluster, perf []cluster.Performance, sizes []int) (float64, error) {
	share := func(i int, t float64) int {
		low, high := 0, c.GlobalBatch+1
		for high-low > 1 {
			if b := (low + high) / 2; c.Nodes[i].Finish(perf[i], b) <= t {
				low = b
			} else {
				high = b
			}
		}
		return low
	}
	total := func(t float64) (sum int) {
		for i := range c.Nodes {
			sum += share(i, t)
		}
		return sum
	}
	low, high := 0.0, 1.0
	for total(high) <= c.GlobalBatch {
		high *= 2
	}
	for high-low > 1e-3*high {
		if t := (low + high) / 2; total(t) <= c.GlobalBatch {
			low = t
		} else {
			high = t
		}
	}
	left := c.GlobalBatch
	for i := range sizes {
		sizes[i] = share(i, low)
		left -= sizes[i]
	}
	for ; left > 0; left-- {
		best := 0
		for i := range sizes {
			if c.Nodes[i].Finish(perf[i], sizes[i]+1) < c.Nodes[best].Finish(perf[best], sizes[best]+1) {
				best = i
			}
		}
		sizes[best]++
	}
	finish := 0.0
	for i, b := range sizes {
		finish = max(finish, c.Nodes[i].Finish(perf[i], b))
	}
	if finish == 0 {
		return 0, errors.New("nothing was handed out")
	}
	return finish, nil
}

// product is m x k times k x n by three loops, in an order that a cache likes.
type product struct {
	m, n, k int
	a, b, c []float32
}

func newProduct(m, n, k int) *product {
	rng := rand.New(rand.NewPCG(1, 1))
	p := &product{m: m, n: n, k: k, a: make([]float32, m*k), b: make([]float32, k*n), c: make([]float32, m*n)}
	for i := range p.a {
		p.a[i] = rng.Float32()
	}
	for i := range p.b {
		p.b[i] = rng.Float32()
	}
	return p
}

func (p *product) run() {
	clear(p.c)
	for i := range p.m {
		row := p.c[i*p.n:][:p.n]
		for l := range p.k {
			x := p.a[i*p.k+l]
			for j, y := range p.b[l*p.n:][:p.n] {
				row[j] += x * y
			}
		}
	}
}

// products runs several one after the other: the arithmetic of a network, and nothing else.
func products(sizes ...[3]int) func() error {
	var all []*product
	for _, s := range sizes {
		all = append(all, newProduct(s[0], s[1], s[2]))
	}
	return func() error {
		for _, p := range all {
			p.run()
		}
		return nil
	}
}

// sorting sorts n random numbers.
func sorting(n int) func() error {
	rng := rand.New(rand.NewPCG(2, 2))
	numbers, sorted := make([]float64, n), make([]float64, n)
	for i := range numbers {
		numbers[i] = rng.Float64()
	}
	return func() error {
		copy(sorted, numbers)
		slices.Sort(sorted)
		return nil
	}
}
