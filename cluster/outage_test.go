package cluster

import "testing"

func TestOutageValidate(t *testing.T) {
	c := Conditions{Outages: []Outage{{Share: 1, Rounds: 1}, {Share: 2, Rate: -1, Spread: 4, Lasting: 1.5, Slowdown: 0.5}, {Rounds: 1, Slowdown: 101}}}
	want := `outages[1].share is 2; it must lie in 0..1
outages[1].rate is -1; it must lie in 0..1
outages[1].rounds is 0; it must lie in 1..1000000000
outages[1].spread is 4; it must lie in 0..3
outages[1].lasting is 1.5; it must lie in 0..1
outages[1].slowdown is 0.5; it must lie in 1..100
outages[2].slowdown is 101; it must lie in 1..100`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
