package cluster

import "fmt"

// Outage is a kind of spell in which a node that is there is of little use: it takes work and
// hands in nothing, or is many times slower. Unlike one that failed, nothing but its work says so.
// It begins at random and lasts a geometric number of rounds.
type Outage struct {
	Share    float64 `yaml:"share,omitempty" json:"share"`                // chance of a node to be one that has them, 0..1
	Rate     float64 `yaml:"rate,omitempty" json:"rate"`                  // starts per such node and round, 0..1
	Rounds   float64 `yaml:"rounds" json:"rounds"`                        // mean length, 1..1e9
	Spread   float64 `yaml:"spread,omitempty" json:"spread,omitzero"`     // sd over nodes of the log of the rate and of the mean length, 0..3
	Lasting  float64 `yaml:"lasting,omitempty" json:"lasting,omitzero"`   // share that never end, 0..1
	Slowdown float64 `yaml:"slowdown,omitempty" json:"slowdown,omitzero"` // 1..100; zero: it hands in nothing
}

func (o *Outage) check(prefix string, p *problems) {
	within := func(path string, v, least, most float64) {
		p.within(fmt.Sprintf("%s.%s", prefix, path), v, least, most)
	}
	within("share", o.Share, 0, 1)
	within("rate", o.Rate, 0, 1)
	within("rounds", o.Rounds, 1, maxRounds)
	within("spread", o.Spread, 0, maxSD)
	within("lasting", o.Lasting, 0, 1)
	if o.Slowdown != 0 {
		within("slowdown", o.Slowdown, 1, maxFactor)
	}
}
