package profile

import "math"

// Fit is t(b) = max(Floor, Alpha + Beta*b) through the measured points, b in samples.
type Fit struct {
	Alpha       float64 `json:"alpha"`         // seconds; may be negative where the time grows faster than the batch
	Beta        float64 `json:"beta"`          // seconds per sample, above 0
	R2          float64 `json:"r2"`            // share of the variance explained; 1 is a perfect fit
	MaxRelError float64 `json:"max_rel_error"` // worst |fit - t| / t over the points
	Floor       float64 `json:"floor"`         // seconds; 0 = no floor is seen
	FloorPoints int     `json:"floor_points"`  // points on the floor
	MemoryR2    float64 `json:"memory_r2"`     // of the line through the peak bytes; 0 with fewer than two of them
}

// Seconds is the fit's time of b samples.
func (f Fit) Seconds(b float64) float64 { return max(f.Floor, f.Alpha+f.Beta*b) }

// A floor is accepted if the times of at least the two smallest batches lie within a factor
// floorSpread, floorRest points remain for the line, and the hinge has less than floorGain
// of the squared relative error of the plain line: one more parameter fits a little better
// anyway.
const (
	floorSpread = 1.15
	floorRest   = 3
	floorGain   = 0.5
)

func fitTime(points []Point) Fit {
	n := len(points)
	x, y := make([]float64, n), make([]float64, n)
	for i, q := range points {
		x[i], y[i] = float64(q.MicroBatch), q.Seconds
	}
	if n == 1 {
		return Fit{Beta: y[0] / x[0], R2: 1}
	}
	var best Fit
	best.Alpha, best.Beta = line(x, y)
	need := floorGain * relativeSquares(best, x, y)
	low, high, sum := y[0], y[0], y[0]
	for k := 2; k <= n-floorRest; k++ {
		low, high, sum = min(low, y[k-1]), max(high, y[k-1]), sum+y[k-1]
		if high > floorSpread*low {
			break
		}
		f := Fit{Floor: sum / float64(k), FloorPoints: k}
		f.Alpha, f.Beta = line(x[k:], y[k:])
		// A line that is above the floor at the floor's last point makes no hinge.
		if f.Beta <= 0 || f.Alpha+f.Beta*x[k-1] > floorSpread*f.Floor {
			continue
		}
		if e := relativeSquares(f, x, y); e < need {
			best, need = f, e
		}
	}
	best.R2 = rSquared(x, y, best.Seconds)
	for i := range x {
		best.MaxRelError = max(best.MaxRelError, math.Abs(best.Seconds(x[i])-y[i])/y[i])
	}
	return best
}

func relativeSquares(f Fit, x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		e := (f.Seconds(x[i]) - y[i]) / y[i]
		sum += e * e
	}
	return sum
}

// line is the ordinary least-squares line through at least two different x.
func line(x, y []float64) (alpha, beta float64) {
	var mx, my float64
	for i := range x {
		mx += x[i]
		my += y[i]
	}
	n := float64(len(x))
	mx, my = mx/n, my/n
	var sxx, sxy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
	}
	beta = sxy / sxx
	return my - beta*mx, beta
}

// rSquared is 1 - residual/total variance; without variance, 1 if the fit is exact, else 0.
func rSquared(x, y []float64, f func(float64) float64) float64 {
	mean := 0.0
	for _, v := range y {
		mean += v
	}
	mean /= float64(len(y))
	var left, total float64
	for i := range x {
		left += (y[i] - f(x[i])) * (y[i] - f(x[i]))
		total += (y[i] - mean) * (y[i] - mean)
	}
	if total == 0 {
		if left == 0 {
			return 1
		}
		return 0
	}
	return 1 - left/total
}
