package cluster

import (
	"fmt"
	"slices"

	"evenkeel/internal/badinput"
)

// Pattern is spells of slowness with an order in them, so that there is something to foresee. It advances by
// simulated time, unlike all other conditions, which advance by round: a slow policy meets as many spells an hour as a quick
// one, and a node slows down and recovers in the middle of a round. The unit of time is a nominal round: how long the
// cluster takes for the global batch without noise, every node at its constant slowdown.
type Pattern struct {
	Per    string  `yaml:"per,omitempty" json:"per,omitempty"`       // who meets a spell together; "": node
	Size   int     `yaml:"size,omitempty" json:"size,omitempty"`     // consecutive nodes of a host or rack where no node names its own, 1..100000; 0: 4
	Share  float64 `yaml:"share,omitempty" json:"share,omitempty"`   // chance of a node, host or rack to have spells, 0..1; with run: of a node; 0: 1
	Every  Spread  `yaml:"every" json:"every"`                       // from the begin of a spell to that of the next, over spells; median 1..1e9
	Length Spread  `yaml:"length" json:"length"`                     // of a spell, over spells; median 0.01..1e9
	Vary   float64 `yaml:"vary,omitempty" json:"vary,omitempty"`     // sd of the log of a factor of Every and Length, drawn once for those who meet spells together; 0..3
	Excess Spread  `yaml:"excess" json:"excess"`                     // of slowdown - 1 in a spell, drawn once likewise; median 0..99, clipped at 99, a standstill
	Lag    float64 `yaml:"lag,omitempty" json:"lag,omitempty"`       // how much later each next node of the group meets a spell, 0..1e9
	Hop    bool    `yaml:"hop,omitempty" json:"hop,omitempty"`       // a spell is at one node of the group, the next spell at the next node
	Ramp   bool    `yaml:"ramp,omitempty" json:"ramp,omitempty"`     // the slowness grows to Excess in eight equal steps
	Notice float64 `yaml:"notice,omitempty" json:"notice,omitempty"` // how long before a spell, if no other is under way, the node is already slower by Sign; 0..1e9
	Sign   float64 `yaml:"sign,omitempty" json:"sign,omitempty"`     // slowdown - 1 in that time, 0..99
	// Announced spells are pauses: the node begins its work of the next round so much later, and says so in its report before.
	Announced bool `yaml:"announced,omitempty" json:"announced,omitempty"`
}

// Values of Pattern.Per.
const (
	PerNode = "node"
	PerHost = "host" // Node.Host
	PerRack = "rack" // Node.Rack
	PerRun  = "run"
)

const (
	maxPatterns = 32
	leastEvery  = 1.0
	leastLength = 0.01
)

// Slowdown is that of a spell from a standard normal number.
func (p *Pattern) Slowdown(z float64) float64 { return 1 + min(p.Excess.Draw(z), maxFactor-1) }

func (p *Pattern) check(path string, f *badinput.Faults) {
	within := func(field string, v, least, most float64) { f.Within(path+"."+field, v, least, most) }
	if !slices.Contains([]string{"", PerNode, PerHost, PerRack, PerRun}, p.Per) {
		f.Add(path+".per", "is %.40q; it must be node, host, rack or run", p.Per)
	}
	if p.Size != 0 {
		within("size", float64(p.Size), 1, MaxNodes)
	}
	within("share", p.Share, 0, 1)
	within("every.median", p.Every.Median, leastEvery, maxRounds)
	within("every.sigma", p.Every.Sigma, 0, maxSD)
	within("length.median", p.Length.Median, leastLength, maxRounds)
	within("length.sigma", p.Length.Sigma, 0, maxSD)
	within("vary", p.Vary, 0, maxSD)
	within("excess.median", p.Excess.Median, 0, maxFactor-1)
	within("excess.sigma", p.Excess.Sigma, 0, maxSD)
	within("lag", p.Lag, 0, maxRounds)
	within("notice", p.Notice, 0, maxRounds)
	within("sign", p.Sign, 0, maxFactor-1)
	if p.Announced && (p.Excess != Spread{} || p.Ramp || p.Notice > 0 || p.Sign > 0) {
		f.Add(path+".announced", "is true; then excess, ramp, notice and sign must be left out, as a node stands still in a pause")
	}
	if (p.Lag > 0 || p.Hop) && (p.Per == "" || p.Per == PerNode) {
		f.Add(path+".per", "is node; lag and hop need host, rack or run, whose nodes a spell reaches one after the other")
	}
}

func (c *Conditions) checkPatterns(f *badinput.Faults) {
	if len(c.Patterns) > maxPatterns {
		f.Add("patterns", "lists %d; it must list at most %d", len(c.Patterns), maxPatterns)
	}
	for i := range c.Patterns {
		c.Patterns[i].check(fmt.Sprintf("patterns[%d]", i), f)
	}
	if c.Turns != (Spread{}) {
		f.Within("turns.median", c.Turns.Median, leastEvery, maxRounds)
		f.Within("turns.sigma", c.Turns.Sigma, 0, maxSD)
	}
}

// The patterns of the presets. Their mechanisms are plain; what has no source is invented.
var (
	// Another job's regular work on the node's device or host: cron jobs, evaluations, log rotation. The slowdown is
	// measured (gavel/gavel_colocation.csv), the times are invented.
	periodic = Pattern{Share: 0.25, Every: Spread{40, 0.05}, Length: Spread{6, 0.1}, Vary: 0.4, Excess: gpuSharing}
	// Half of the nodes, those that write, stand still together at intervals: a checkpoint, an evaluation, a collection of
	// garbage by the clock. Invented.
	saves = Pattern{Per: PerRun, Share: 0.5, Every: Spread{Median: 20}, Length: Spread{1.5, 0.2}, Vary: 0.3, Excess: Spread{Median: maxFactor - 1}}
	// The same, between rounds, and told before, as trainers know when they save.
	announcedSaves = Pattern{Per: PerRun, Share: 0.5, Every: Spread{Median: 20}, Length: Spread{1.5, 0.2}, Vary: 0.3, Announced: true}
	// Heat, or a power domain's budget, spreads through a rack from node to node. Invented; slowdown as of the preset racks.
	cascade = Pattern{Per: PerRack, Every: Spread{80, 0.7}, Length: Spread{12, 0.3}, Excess: Spread{0.5, 0.5}, Lag: 2}
	// A device heats up, its clock falls step by step, a fan or a controller resets it. The slowdown is that of power limits
	// (zeus/powercap_slowdown.csv), its spread narrowed and the times invented.
	thermal = Pattern{Every: Spread{25, 0.05}, Length: Spread{20, 0.05}, Vary: 0.3, Excess: Spread{0.15, 0.6}, Ramp: true}
	// What comes at random moments but shows before: a co-tenant that loads its data, a link whose errors rise. Invented; length and
	// slowdown as of the preset bursts.
	announced = Pattern{Every: Spread{150, 1}, Length: Spread{10, 0.5}, Excess: Spread{1.3, 0.7}, Notice: 3, Sign: 0.1}
	// A tenant that a scheduler moves from node to node. The slowdown is measured (gavel/gavel_colocation.csv), its spread narrowed
	// and the times invented.
	hopping = Pattern{Per: PerRack, Size: 16, Every: Spread{10, 0.1}, Length: Spread{10, 0.1}, Excess: Spread{gpuSharing.Median, 0.4}, Hop: true}
)

func patterns(all ...Pattern) func(*Conditions) {
	return func(c *Conditions) { c.Patterns = slices.Clone(all) }
}
