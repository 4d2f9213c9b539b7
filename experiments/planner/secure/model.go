package main

import (
	"fmt"
	"slices"
)

// line is seconds of a message: so many each, and so many per byte.
type line struct{ message, byte float64 }

func (l line) of(bytes int) float64 { return l.message + l.byte*float64(bytes) }

func (l line) String() string {
	return fmt.Sprintf("%.1f µs + %.3f ns per byte", 1e6*l.message, 1e9*l.byte)
}

// model is a link's time in the clear and encrypted.
type model struct{ plain, tls line }

// added is what encryption and decryption add.
func (m model) added() line {
	return line{m.tls.message - m.plain.message, m.tls.byte - m.plain.byte}
}

// timed is the measured seconds of one way of a message.
type timed struct {
	bytes      int
	plain, tls float64
}

// fit is the least squares of relative errors over the calibrated sizes.
func fit(times []timed) model {
	var n, plain, tls []float64
	for _, t := range times {
		if slices.Contains(calibrated, t.bytes) {
			n, plain, tls = append(n, float64(t.bytes)), append(plain, t.plain), append(tls, t.tls)
		}
	}
	return model{least(n, plain), least(n, tls)}
}

// least minimises the sum of ((a + b x) / y - 1)^2.
func least(x, y []float64) line {
	var s1, sx, sxx, t1, tx float64
	for i := range x {
		w := 1 / (y[i] * y[i])
		s1 += w
		sx += w * x[i]
		sxx += w * x[i] * x[i]
		t1 += w * y[i]
		tx += w * x[i] * y[i]
	}
	d := s1*sxx - sx*sx
	return line{(t1*sxx - tx*sx) / d, (s1*tx - sx*t1) / d}
}
