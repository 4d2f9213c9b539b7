package profile

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func mustNew(t testing.TB, points ...Point) *Profile {
	t.Helper()
	p, err := New("d", "w", points, "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// genPoints draws series as people measure them: 1..n or gaps, noise, sometimes a floor.
func genPoints(t *rapid.T) []Point {
	n := rapid.IntRange(1, 24).Draw(t, "n")
	contiguous := rapid.Bool().Draw(t, "contiguous")
	alpha := rapid.Float64Range(0, 1).Draw(t, "alpha")
	beta := rapid.Float64Range(1e-6, 1).Draw(t, "beta")
	floor := rapid.SampledFrom([]float64{0, 0, 2}).Draw(t, "floor")
	noise := rapid.SampledFrom([]float64{0, 0.02, 0.5}).Draw(t, "noise")
	points, b := make([]Point, n), 0
	for i := range points {
		if b++; !contiguous {
			b += rapid.IntRange(0, 100).Draw(t, "gap")
		}
		s := max(floor, alpha+beta*float64(b)) * (1 + noise*rapid.Float64Range(-1, 1).Draw(t, "e"))
		points[i] = Point{MicroBatch: b, Seconds: s}
		if rapid.Bool().Draw(t, "peak") {
			points[i].PeakBytes = rapid.Int64Range(1, 1<<40).Draw(t, "bytes")
		}
	}
	return points
}

func genProfile(t *rapid.T) *Profile {
	p, err := New("d", "w", genPoints(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSecondsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		a := rapid.Float64Range(-1, 3000).Draw(t, "a")
		b := a + rapid.Float64Range(0, 10).Draw(t, "step")
		x, y := p.Seconds(a), p.Seconds(b)
		if !(x <= y) || b > 0 && !(y > 0) || math.IsInf(y, 0) {
			t.Fatalf("Seconds(%v) = %v, Seconds(%v) = %v", a, x, b, y)
		}
		if !(p.PerSample() > 0) || math.IsInf(p.PerSample(), 0) {
			t.Fatalf("PerSample %v", p.PerSample())
		}
	})
}

// naive is Seconds written down plainly: the same knots, searched from the left.
func naive(p *Profile, b float64) float64 {
	y := make([]float64, len(p.Points))
	for i, q := range p.Points {
		y[i] = q.Seconds
	}
	y = naiveIsotonic(y)
	n := len(y)
	x := func(i int) float64 { return float64(p.Points[i].MicroBatch) }
	if b >= x(n-1) {
		return y[n-1] + p.time.last()*(b-x(n-1))
	}
	for i := n - 2; i >= 0; i-- {
		if b >= x(i) {
			return y[i] + (y[i+1]-y[i])*(b-x(i))/(x(i+1)-x(i))
		}
	}
	zero := p.Seconds(0)
	return zero + (y[0]-zero)*max(b, 0)/x(0)
}

// naiveIsotonic uses the min-max formula: y[i] = max over j<=i of min over k>=i of mean(j..k).
func naiveIsotonic(y []float64) []float64 {
	out := make([]float64, len(y))
	for i := range y {
		best := math.Inf(-1)
		for j := 0; j <= i; j++ {
			low := math.Inf(1)
			for k := i; k < len(y); k++ {
				sum := 0.0
				for _, v := range y[j : k+1] {
					sum += v
				}
				low = min(low, sum/float64(k-j+1))
			}
			best = max(best, low)
		}
		out[i] = best
	}
	return out
}

func TestSecondsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		b := rapid.Float64Range(0, 3000).Draw(t, "b")
		if got, want := p.Seconds(b), naive(p, b); math.Abs(got-want) > 1e-9*(1+want) {
			t.Fatalf("Seconds(%v) = %v, plainly %v", b, got, want)
		}
	})
}

func TestSamplesInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		s := rapid.Float64Range(0, 3000).Draw(t, "s")
		b := p.Samples(s)
		if s < p.Seconds(0) {
			if b != 0 {
				t.Fatalf("Samples(%v) = %v below the overhead", s, b)
			}
			return
		}
		if got := p.Seconds(b); math.Abs(got-s) > 1e-9*(1+s) {
			t.Fatalf("Seconds(Samples(%v) = %v) = %v", s, b, got)
		}
		// Nothing larger fits: the right end of a plateau.
		if more := b*(1+1e-6) + 1e-6; p.Seconds(more) <= s*(1-1e-12) {
			t.Fatalf("Samples(%v) = %v, but %v fits too", s, b, more)
		}
		for _, q := range p.Points { // exact at measured points
			x := float64(q.MicroBatch)
			if got := p.Samples(p.Seconds(x)); got < x {
				t.Fatalf("Samples(Seconds(%v)) = %v", x, got)
			}
		}
	})
}

func TestSecondsCases(t *testing.T) {
	line := mustNew(t, Point{1, 3, 0}, Point{2, 5, 0}, Point{3, 7, 0})
	gap := mustNew(t, Point{10, 2, 0}, Point{20, 3, 0}, Point{40, 5, 0})
	floor := mustNew(t, Point{4, 1, 0}, Point{8, 1.02, 0}, Point{16, 2, 0}, Point{32, 4, 0}, Point{64, 8, 0})
	single := mustNew(t, Point{8, 4, 0})
	dip := mustNew(t, Point{1, 1, 0}, Point{2, 3, 0}, Point{3, 2, 0}, Point{4, 4, 0})
	steep := mustNew(t, Point{16, 1, 0}, Point{17, 2, 0})
	flat := mustNew(t, Point{1, 2, 0}, Point{2, 2, 0}, Point{3, 2, 0})
	for _, c := range []struct {
		name    string
		p       *Profile
		b, want float64
	}{
		{"at a point", line, 2, 5}, {"between", line, 2.5, 6}, {"overhead", line, 0, 1}, {"negative", line, -4, 1}, {"beyond", line, 5, 11},
		{"gap between", gap, 25, 3.5}, {"gap below", gap, 5, 1.5}, {"gap beyond", gap, 80, 9},
		{"floor held below", floor, 1, 1}, {"floor at zero", floor, 0, 1},
		{"single half", single, 4, 2}, {"single double", single, 16, 8}, {"single none", single, 0, 0},
		{"dip pooled", dip, 2, 2.5}, {"dip pooled right", dip, 3, 2.5},
		{"steep start never below zero", steep, 0, 0.01},
		{"flat end still costs", flat, 3 + 150, 3},
		{"not a number", line, math.NaN(), 1}, {"without end", line, math.Inf(1), math.Inf(1)},
		{"zero profile", new(Profile), 3, 0},
	} {
		if got := c.p.Seconds(c.b); got != c.want && math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: Seconds(%v) = %v, want %v", c.name, c.b, got, c.want)
		}
	}
	if got := dip.Samples(2.5); got != 3 {
		t.Errorf("Samples on a plateau = %v, want its right end 3", got)
	}
	for _, s := range []float64{math.NaN(), -1, 0.5} {
		if got := line.Samples(s); got != 0 {
			t.Errorf("Samples(%v) = %v", s, got)
		}
	}
	if dip.smoothed != 2 || line.smoothed != 0 {
		t.Errorf("smoothed %d and %d", dip.smoothed, line.smoothed)
	}
	if f := floor.Fit(); f.FloorPoints != 2 || math.Abs(f.Beta-0.125) > 1e-12 {
		t.Errorf("floor fit %+v", f)
	}
	if f := line.Fit(); f.Alpha != 1 || f.Beta != 2 || f.R2 != 1 || f.FloorPoints != 0 || line.PerSample() != 2 {
		t.Errorf("line fit %+v", f)
	}
	for b, want := range map[int]bool{9: true, 10: false, 25: false, 40: false, 41: true} {
		if gap.Extrapolated(b) != want {
			t.Errorf("Extrapolated(%d) = %v", b, !want)
		}
	}
}

// One bad last pair must not rule the extrapolation.
func TestLastSlopeRobust(t *testing.T) {
	var points []Point
	for b := 1; b <= 16; b++ {
		points = append(points, Point{MicroBatch: b, Seconds: 1 + 0.5*float64(b)})
	}
	points[15].Seconds += 2 // the last slope would be 2.5
	if got := mustNew(t, points...).time.last(); got < 0.4 || got > 0.75 {
		t.Errorf("slope %v, want near 0.5", got)
	}
}

func TestMemoryTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		bytes := rapid.Int64Range(0, 1<<42).Draw(t, "budget")
		limit := p.MemoryLimit(bytes)
		last, known := int64(-1), false
		plain := 0
		for b := 1; b <= 4000; b++ { // plainly: try every size
			peak, ok := p.PeakBytes(b)
			if known = ok; !ok {
				break
			}
			if peak < last {
				t.Fatalf("peak falls at %d", b)
			}
			if last = peak; peak <= bytes {
				plain = b
			}
		}
		switch {
		case !known && limit != NoLimit:
			t.Fatalf("limit %d without measured memory", limit)
		case known && plain < 4000 && limit != plain:
			t.Fatalf("limit %d, plainly %d", limit, plain)
		case known && plain == 4000 && limit < 4000:
			t.Fatalf("limit %d, plainly at least 4000", limit)
		}
		for _, q := range p.Points {
			if peak, _ := p.PeakBytes(q.MicroBatch); peak < q.PeakBytes {
				t.Fatalf("PeakBytes(%d) = %d under the measured %d", q.MicroBatch, peak, q.PeakBytes)
			}
		}
	})
}

func TestMemoryCases(t *testing.T) {
	p := mustNew(t, Point{2, 1, 300}, Point{3, 2, 400}, Point{4, 3, 500}, Point{5, 4, 0})
	for b, want := range map[int]int64{1: 200, 2: 300, 3: 400, 5: 600, 10: 1100} {
		if got, ok := p.PeakBytes(b); got != want || !ok {
			t.Errorf("PeakBytes(%d) = %d, want %d", b, got, want)
		}
	}
	for bytes, want := range map[int64]int{0: 0, 199: 0, 200: 1, 450: 3, 1099: 9, math.MaxInt64: NoLimit} {
		if got := p.MemoryLimit(bytes); got != want {
			t.Errorf("MemoryLimit(%d) = %d, want %d", bytes, got, want)
		}
	}
	one := mustNew(t, Point{4, 1, 100})
	for b, want := range map[int]int64{1: 100, 4: 100, 8: 200} {
		if got, _ := one.PeakBytes(b); got != want {
			t.Errorf("one point: PeakBytes(%d) = %d, want %d", b, got, want)
		}
	}
	none := mustNew(t, Point{4, 1, 0})
	if _, ok := none.PeakBytes(4); ok || none.MemoryLimit(1) != NoLimit {
		t.Error("unmeasured memory has a limit")
	}
}

func TestNewErrors(t *testing.T) {
	good := Point{1, 1, 0}
	for _, c := range []struct {
		device string
		points []Point
		want   string
	}{
		{"", []Point{good}, "profile: device: is empty"},
		{"d", nil, "profile: w on d: 0 points, want 1 to 4096"},
		{"d", []Point{{0, 1, 0}}, "profile: w on d: point 1 (micro-batch 0): micro-batch outside 1 to 1000000"},
		{"d", []Point{{2, 1, 0}, good}, "profile: w on d: point 2 (micro-batch 1): micro-batch does not increase after 2"},
		{"d", []Point{{1, math.NaN(), 0}}, "profile: w on d: point 1 (micro-batch 1): NaN seconds, want 1e-09 to 1e+06"},
		{"d", []Point{{1, 1, -1}}, "profile: w on d: point 1 (micro-batch 1): -1 peak bytes, want 0 to 1125899906842624"},
	} {
		if _, err := New(c.device, "w", c.points, ""); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func BenchmarkSeconds(b *testing.B) {
	for _, c := range []struct{ name, device, workload string }{
		{"contiguous", "a10g", "llama-3b-512-fp16"}, {"gaps", "v100", "recommendation"},
	} {
		p, err := Embedded().Lookup(c.device, c.workload)
		if err != nil {
			b.Fatal(err)
		}
		last := float64(p.Points[len(p.Points)-1].MicroBatch)
		var at [1024]float64
		for i := range at {
			at[i] = last * 1.2 * float64(i*389%1024) / 1024
		}
		sink := 0.0
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sink += p.Seconds(at[i&1023])
			}
		})
		b.Run(c.name+"/inverse", func(b *testing.B) {
			b.ReportAllocs()
			s := p.Seconds(last) / last
			for i := 0; b.Loop(); i++ {
				sink += p.Samples(s * at[i&1023])
			}
		})
		_ = sink
	}
}
