package env

import (
	"testing"

	"evenkeel/cluster"
)

func TestSee(t *testing.T) {
	s := seen{fresh: true, late: true, size: 5}
	s.see(&cluster.NodeReport{Status: cluster.In, Size: 9, Seconds: 1, Age: 3, Norm: 1.5, Agree: 0.7, Busy: 0.25, BusySize: 4}, 2)
	if want := (seen{size: 5, busy: 0.25, busySize: 4, share: 0.5, age: 1.5}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	s.see(&cluster.NodeReport{Status: cluster.In, Seconds: 5, Age: 9}, 2)
	if s.share != 2 || s.age != 4 {
		t.Errorf("share %v, age %v beyond their bounds", s.share, s.age)
	}
	for _, x := range []struct {
		report cluster.NodeReport
		late   bool
		size   int
	}{
		{cluster.NodeReport{Status: cluster.Late, Size: 9, Seconds: 1}, true, 9},
		{cluster.NodeReport{Status: cluster.Late, Size: 0}, false, 5},
		{cluster.NodeReport{Status: cluster.Lost, Size: 9}, false, 5},
		{cluster.NodeReport{Status: cluster.In, Size: 9}, false, 5},
	} {
		s := seen{size: 5}
		if s.see(&x.report, 2); s.late != x.late || s.size != x.size || s.fresh {
			t.Errorf("%+v: late %v, size %d", x.report, s.late, s.size)
		}
	}
}

func TestAdd(t *testing.T) {
	var s seen
	s.add(1.5, &cluster.NodeReport{Size: 10, Seconds: 0.3})
	if want := (seen{newest: [4]float64{1.5, 1.5, 1.5, 1.5}, count: 1, seconds: 0.3, size: 10, fresh: true}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	for _, m := range []float64{2, 3, 4, 5} {
		s.add(m, &cluster.NodeReport{Size: 20, Seconds: m})
	}
	if want := (seen{newest: [4]float64{5, 4, 3, 2}, count: 5, seconds: 5, size: 20, fresh: true}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// At a long-run level of 1: only faster measurements are doubted, and only at a large gain.
func TestBelievable(t *testing.T) {
	for _, x := range []struct{ newest, before, gain, want float64 }{
		{0.8, 0.9, 0.25, 0.8}, {0.8, 0.9, 0.26, 0.9}, {0.9, 0.8, 1, 0.9}, {0.8, 1.3, 1, 1}, {1, 1.3, 1, 1}, {1.2, 1.3, 1, 1.2},
	} {
		s := seen{newest: [4]float64{x.newest, x.before}}
		if got := s.believable(x.gain, 1); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
}
