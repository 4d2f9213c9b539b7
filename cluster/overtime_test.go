package cluster

import "testing"

// After the deadline a node takes its smallest micro-steps, as long as they are short enough at
// the pace of this round, the round does not end before, and they are no more than what it did
// in time.
func TestMoreAfterTheDeadline(t *testing.T) {
	for name, x := range map[string]struct {
		node  Node
		order Order
		pace  float64
		at    float64 // of the first question
		want  []int   // sizes until 0
	}{
		"small ones":               {Node{Limit: 4}, Order{Overtime: 1}, 1, 10, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		"the least that it takes":  {Node{Limit: 4, Least: 3}, Order{Overtime: 3}, 1, 10, []int{3, 3}},
		"the smallest shape":       {Node{Limit: 4, Shapes: []int{2, 4}}, Order{Overtime: 2}, 1, 10, []int{2, 2, 2, 2, 2}},
		"too long":                 {Node{Limit: 4, Least: 3}, Order{Overtime: 2.9}, 1, 10, nil},
		"too long at today's pace": {Node{Limit: 4}, Order{Overtime: 1}, 1.5, 10.5, nil},
		"whole":                    {Node{Limit: 4}, Order{Overtime: 4, Whole: true}, 1, 10, []int{4, 4}},
		"whole, a small share":     {Node{Limit: 4}, Order{Overtime: 4, Whole: true, Share: 2}, 1, 10, []int{2, 2, 2, 2, 2}},
		"whole, too long":          {Node{Limit: 4}, Order{Overtime: 3, Whole: true}, 1, 10, nil},
		"before the deadline":      {Node{Limit: 4}, Order{Overtime: 1}, 1, 9.99, nil},
		"the timeout is near":      {Node{Limit: 4}, Order{Overtime: 1, Timeout: 14}, 1, 10, []int{1, 1, 1}},
		"none":                     {Node{Limit: 4}, Order{}, 1, 10, nil},
		"not beyond the share":     {Node{Limit: 4}, Order{Overtime: 1, Within: true, Share: 20}, 1, 10, nil},
		"no share":                 {Node{Limit: 4}, Order{Overtime: 1, Share: -1}, 1, 10, nil},
	} {
		o := x.order
		if o.Deadline, o.Pace = 10, 1; o.Share == 0 {
			o.Share = 8
		}
		a, elapsed := x.node.Begin(o), 0.0
		if got := a.More(20); got != 0 {
			t.Errorf("%s: %d before it has ended", name, got)
		}
		for size := a.Next(elapsed); size > 0; size = a.Next(elapsed) {
			elapsed += x.pace * float64(size)
			a.Done(size, x.pace*float64(size))
		}
		inTime, steps := a.Samples()
		elapsed = x.at
		var got []int
		total := inTime
		for size := a.More(elapsed); size > 0; size = a.More(elapsed) {
			got, total = append(got, size), total+size
			elapsed += x.pace * float64(size)
			a.Done(size, x.pace*float64(size))
		}
		same := len(got) == len(x.want)
		for k := range min(len(got), len(x.want)) {
			same = same && got[k] == x.want[k]
		}
		if samples, all := a.Samples(); !same || samples != total || all != steps+len(got) {
			t.Errorf("%s: %v after %d samples, %d in %d, want %v", name, got, inTime, samples, all, x.want)
		}
	}
}
