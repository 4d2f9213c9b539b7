package serve

import (
	"time"

	"evenkeel/cluster"
	"evenkeel/serve/history"
)

// JobState is what the service says of a job.
type JobState struct {
	Name        string           `json:"name"`
	GlobalBatch int              `json:"global_batch" doc:"Samples per round over all ranks in the newest start; 0: the process group gives it when it starts"`
	Workload    string           `json:"workload" doc:"Name in the catalogue of profiles; empty: no profiles are used"`
	Deadline    string           `json:"deadline" doc:"When rounds end: a duration, auto, or empty to wait for all"`
	EqualSteps  int              `json:"equal_steps,omitempty" doc:"Micro-steps that every rank makes in a round; absent: each rank as few as its memory allows"`
	Objectives  Weights          `json:"objectives"`
	Paused      bool             `json:"paused" doc:"true: sizes stay as they are"`
	Generation  int              `json:"generation" doc:"Starts of the process group so far"`
	Plan        int              `json:"plan" doc:"Number of the newest sizes"`
	Rounds      int              `json:"rounds" doc:"Rounds with an accepted report, in all generations"`
	Samples     int64            `json:"samples" doc:"Samples in these rounds"`
	Created     time.Time        `json:"created"`
	LastReport  time.Time        `json:"last_report,omitzero" doc:"When the newest report was accepted; absent: no report yet"`
	RankCount   int              `json:"rank_count"`
	LeftOut     int              `json:"left_out" doc:"Ranks without a share"`
	Absurd      int64            `json:"absurd" doc:"How often reports of this generation held impossible values; these were ignored"`
	Ranks       []RankState      `json:"ranks" nullable:"false"`
	Reports     map[string]int64 `json:"reports" doc:"Reports by verdict"`
	First       Pace             `json:"first" doc:"Pace with the first sizes of the job"`
	Recent      Pace             `json:"recent" doc:"Pace in the newest rounds"`
	Gain        float64          `json:"gain" doc:"Samples per second of the whole run over those predicted for equal shares from the measured times; 0: not known"`
	NoiseScale  float64          `json:"noise_scale" doc:"Gradient noise scale in samples; 0: not known"`
	Efficiency  float64          `json:"efficiency" doc:"Worth of a sample of the newest round to the model, relative to a sample of a round of the global batch"`
	Aside       bool             `json:"aside,omitempty" doc:"true: the job had no reports for a day, and only the journal has it until the next request for it"`
	Problem     string           `json:"problem,omitempty" doc:"Why there are no new sizes"`
}

// state describes the job, with its ranks or without.
func (j *job) state(ranks bool) JobState {
	of := j.settings
	if j.gen.runs() {
		of = j.gen.running
	}
	s := JobState{
		Name: j.name, GlobalBatch: of.GlobalBatch, Workload: of.Workload, Deadline: of.Deadline, EqualSteps: of.EqualSteps, Objectives: j.settings.Objectives,
		Paused: j.paused, Created: j.created,
	}
	j.gen.describe(&s, ranks, &j.record.history)
	j.record.describe(&s)
	return s
}

// describe is state after all that has come in.
func (j *job) describe(ranks bool) JobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.decideAll()
	return j.state(ranks)
}

// RankState is what the service says of a rank.
type RankState struct {
	Name       string        `json:"name"`
	Device     string        `json:"device"`
	Profiled   bool          `json:"profiled" doc:"true: the pace of the device was measured beforehand"`
	Share      int           `json:"share" doc:"Share of the rank in the newest sizes, in samples"`
	MicroBatch int           `json:"micro_batch" doc:"Largest micro-batch that the rank is given; 0: no bound"`
	Seconds    float64       `json:"seconds" doc:"Seconds of compute in the newest round; 0: not known"`
	Input      float64       `json:"input_seconds,omitempty" doc:"Seconds that the data took beyond the compute"`
	Cause      history.Cause `json:"cause,omitempty" enum:"input,compute,network,machine" doc:"What makes the rank slow; machine: its compute, for an hour of rounds without a break"`
	Remedy     string        `json:"remedy,omitempty" doc:"The cause in words, and what to do about it"`
	PerSample  float64       `json:"per_sample" doc:"Believed seconds per sample"`
	LeftOut    string        `json:"left_out,omitempty" doc:"Why the rank has no share"`
}

// Pace is how fast rounds were.
type Pace struct {
	Rounds           int     `json:"rounds"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	Exchange         float64 `json:"exchange" doc:"Share of the rounds' time after the slowest rank was done, which is the exchange of gradients, 0..1"`
	Idle             float64 `json:"idle" doc:"Share of the ranks' time spent waiting for others, 0..1"`
}

// window is how many rounds a pace is measured over.
const window = 20

// round is what a pace needs to know of one round.
type round struct{ samples, seconds, exchange, idle, ranks float64 }

func paceOf(rounds []round) Pace {
	var sum round
	for _, r := range rounds {
		sum.samples += r.samples
		sum.seconds += r.seconds
		sum.exchange += r.exchange
		sum.idle += r.idle
		sum.ranks += r.ranks * r.seconds
	}
	p := Pace{Rounds: len(rounds)}
	if sum.seconds > 0 && sum.ranks > 0 {
		p.SamplesPerSecond, p.Exchange, p.Idle = sum.samples/sum.seconds, sum.exchange/sum.seconds, sum.idle/sum.ranks
	}
	return p
}

// paces hold how fast a job's first and newest rounds were.
type paces struct {
	warm          []round // the first round of all
	first, recent []round
	over          bool // the first sizes no longer run
}

// begin is the pace of the first sizes; if they ran in no other round, that of the warm-up round.
func (p *paces) begin() Pace {
	if len(p.first) == 0 {
		return paceOf(p.warm)
	}
	return paceOf(p.first)
}

// measure takes from a report what a pace needs.
func measure(report *cluster.Report) round {
	r := round{samples: float64(report.Accepted), seconds: report.Wait.Seconds()}
	slowest := 0.0
	for i := range report.Nodes {
		slowest = max(slowest, report.Nodes[i].Seconds)
		idle := report.Nodes[i].Idle
		if report.Nodes[i].Status == cluster.Absent {
			idle = r.seconds
		}
		r.idle += min(idle, r.seconds)
		r.ranks++
	}
	if slowest > 0 {
		r.exchange = max(r.seconds-slowest, 0)
	}
	return r
}

// add takes in a round. warmUp says that it is the first of its process group, which nobody should judge by.
func (p *paces) add(r round, firstSizes, warmUp bool) {
	if warmUp {
		if firstSizes {
			p.warm = []round{r}
		}
		return
	}
	p.over = p.over || !firstSizes
	if !p.over && len(p.first) < window {
		p.first = append(p.first, r)
	}
	if p.recent = append(p.recent, r); len(p.recent) > window {
		p.recent = append(p.recent[:0], p.recent[1:]...)
	}
}
