package env

import "testing"

// Residuals by hand, in deviations: 2, -1, 4 (clipped), 4, 0.
func TestInnovate(t *testing.T) {
	var f filter
	for k, x := range []struct {
		residual         float64
		jump             bool
		average, product float64
		streak, calm     int
	}{
		{0.2, false, 0.2, 0, 1, 1},
		{-0.1, false, 0.08, -0.1, -1, 2},
		{1, true, 0.472, -0.295, 1, 0},
		{0.5, false, 0.472 + 0.1*(4-0.472), -0.295 + 0.05*(16+0.295), 2, 1},
		{0, false, 0, 0, 2, 2},
		{-0.1, false, 0, 0, -1, 3},
		{-0.2, false, 0, 0, -2, 4},
	} {
		f.innovate(x.residual, 0.1, x.jump)
		if f.residual != x.residual || f.streak != x.streak || f.calm != x.calm {
			t.Fatalf("residual %d: %+v", k, f)
		}
		if x.average != 0 && (!near(f.average, x.average) || !near(f.product+1, x.product+1)) {
			t.Fatalf("residual %d: average %v, product %v; want %v, %v", k, f.average, f.product, x.average, x.product)
		}
	}
}

func TestUpdate(t *testing.T) {
	measured := seen{newest: [4]float64{1.3, 1.3, 1.3, 1.3}}
	for _, x := range []struct {
		action                   Action
		levels                   float64
		slowdown, variance, gain float64
	}{
		{Action{Trust: Hold}, 4, 1, 1, 0},
		{Action{Trust: Filter, Drift: 1}, 4, 1.2, 2.0 / 3, 2.0 / 3},
		{Action{Trust: Filter}, 4, 1.15, 0.5, 0.5},
		{Action{Trust: Jump}, 4, 1.3, 1, 1},
		{Action{Trust: Return}, 4, 1.1, 0.25, 0},
		{Action{Trust: Return}, 0, 1.1, 1, 0},
		{Action{Trust: Return}, 1000, 1.1, 0.01, 0},
	} {
		b, f := belief{slowdown: 1, variance: 1, level: 1.1, levels: x.levels}, filter{}
		f.update(&x.action, &b, &measured)
		if !near(b.slowdown, x.slowdown) || !near(b.variance, x.variance) || !near(f.gain, x.gain) {
			t.Errorf("%+v: slowdown %v, variance %v, gain %v", x, b.slowdown, b.variance, f.gain)
		}
	}
	// A jump sets the variance of a single measurement, whatever it was.
	b, f := belief{slowdown: 1, variance: 0.1, level: 1}, filter{}
	if f.update(&Action{Trust: Jump}, &b, &measured); b.variance != 1 {
		t.Errorf("variance %v after a jump", b.variance)
	}
}

// What residuals have in common beyond 0.3 deviations is lag.
func TestLagByHand(t *testing.T) {
	for average, want := range map[float64]float64{0.2: 0, 0.3: 0, 0.8: 0.05, -0.8: -0.05, -0.1: 0} {
		f := filter{average: average, gain: 0.5}
		if got := f.lag(0.1); !near(got, want) {
			t.Errorf("average %v: %v, want %v", average, got, want)
		}
	}
	if f := (filter{average: 2, gain: 1}); f.lag(0.1) != 0 {
		t.Error("a belief that is the newest measurement is behind")
	}
}
