package env

import "math"

const (
	chance    = 0.6 // variance of the logarithm of a deviation estimated from one measurement
	leastPool = 4   // fewest measured nodes that are pooled
)

// pool shrinks the estimates of the nodes' noise towards their mean, as far as they differ by chance: an empirical Bayes
// estimate (James and Stein 1961). Margins that differ by chance make nodes wait for nothing.
func (t *Tracker) pool() {
	var sum, squares, chances exact
	count := 0.0
	for i := range t.nodes {
		n := &t.nodes[i]
		l := math.Log(n.deviation())
		if n.pooled = l; n.count > 1 {
			count++
			sum.add(l)
			squares.add(float64(l * l))
			chances.add(chance / min(n.count+priorWeight, 2/devianceRate))
		}
	}
	mean, keep := 0.0, 1.0
	if count >= leastPool {
		mean = sum.sum() / count
		between := max(squares.sum()/count-float64(mean*mean), 0) * count / (count - 1)
		keep = max(0, 1-(count-3)/(count-1)*chances.sum()/count/max(between, 1e-9))
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		if l := n.pooled; n.count > 1 {
			n.pooled = math.Exp(mean + float64(keep*(l-mean)))
		} else {
			n.pooled = math.Exp(l)
		}
	}
}

// exact is a sum in fixed point, whose bits do not depend on the order of the nodes.
type exact int64

const exactUnit = 1 << 36 // a million squared logarithms of up to 100 fit

func (e *exact) add(v float64) { *e += exact(math.Round(v * exactUnit)) }
func (e exact) sum() float64   { return float64(e) / exactUnit }
