package checkpoint

import (
	"math"
	"strings"
	"testing"

	"evenkeel/checkpoint"
)

// TestCompare changes one thing at a time.
func TestCompare(t *testing.T) {
	run := func(change func(*saved)) saved {
		s := saved{map[string]uint64{"a": 1, "b": 2}, nil}
		for range 2 {
			s.ranks = append(s.ranks, checkpoint.State{Step: 3, Cursor: 4, Scalars: map[string]float64{"x": math.NaN(), "y": 0}, Random: []byte("r"), Nonce: 5})
		}
		change(&s)
		return s
	}
	dcp := func(s *saved) { s.ranks[0].Random, s.ranks[1].Random = []byte("EVKLDCP1"), []byte("EVKLDCP1") }
	for name, c := range map[string]struct {
		a, b func(*saved)
		want string
		same bool
	}{
		"nothing":       {want: "all 2 arrays are the same in both runs, and all else", same: true},
		"the nonce":     {b: func(s *saved) { s.ranks[1].Nonce = 6 }, want: "all 2 arrays are the same in both runs, and all else", same: true},
		"an array":      {b: func(s *saved) { s.arrays["b"] = 3 }, want: "1 of 2 arrays differ between the runs, first b"},
		"one is gone":   {b: func(s *saved) { delete(s.arrays, "a") }, want: "1 of 2 arrays differ between the runs, first a"},
		"one more":      {b: func(s *saved) { s.arrays["c"] = 0 }, want: "1 of 3 arrays differ between the runs, first c"},
		"the cursor":    {b: func(s *saved) { s.ranks[1].Cursor = 5 }, want: "; the position in the data differs, rank 1"},
		"a scalar":      {b: func(s *saved) { s.ranks[0].Scalars["y"] = math.Copysign(0, -1) }, want: "; a scalar differs, rank 0"},
		"a scalar gone": {b: func(s *saved) { delete(s.ranks[0].Scalars, "y") }, want: "; a scalar differs, rank 0"},
		"generators":    {b: func(s *saved) { s.ranks[1].Random = []byte("s") }, want: "; what is no array (generators, plain values, small tensors of DCP) differs, rank 1"},
		"ranks":         {b: func(s *saved) { s.ranks = s.ranks[:1] }, want: "; nothing else was compared, as the numbers of ranks differ", same: true},
		"DCP":           {a: dcp, b: dcp, want: "all 2 arrays are the same in both runs, and all else", same: true},
		"DCP, ranks":    {a: dcp, b: func(s *saved) { dcp(s); s.ranks = s.ranks[:1] }, want: "saved by DCP on 2 ranks and on 1: the parts of tensors cannot be compared"},
	} {
		t.Run(name, func(t *testing.T) {
			keep := func(*saved) {}
			if c.a == nil {
				c.a = keep
			}
			if c.b == nil {
				c.b = keep
			}
			if got, same := run(c.a).compare(run(c.b)); !strings.HasSuffix(got, c.want) || same != c.same {
				t.Errorf("%q, %v; want %q, %v", got, same, c.want, c.same)
			}
		})
	}
}
