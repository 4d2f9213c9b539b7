package serve

import (
	"crypto/sha256"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/agent"
	"github.com/evenkeel/evenkeel/agent/export"
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/live"
	"github.com/evenkeel/evenkeel/serve/history"
)

// maxEnded is how many older registrations are known, lest a process that outlived its group takes over.
const maxEnded = 64

// job is a training job. Its lock guards all of it. What it is follows from the entries of its journal alone: whoever takes
// them in anew, in their order, is where it was. So nothing but apply and decideAll may look at the clock's time, which
// is at, or change what decisions rest on.
type job struct {
	name    string
	config  *Config
	tokens  atomic.Pointer[[]token]
	looked  looked
	created time.Time
	inbox   inbox

	mu       sync.Mutex
	begun    bool          // its creation is known
	headless bool          // its first entries are not
	last     uint64        // number of its newest message in the journal
	since    tail          // of its journal, behind the newest snapshot
	failed   error         // the journal does not hold what the job is: it has to be read anew
	at       time.Duration // of the newest entry, since created
	settings Settings      // of the job; weights hold at once
	running  Settings      // of the generation, as it was registered
	paused   bool
	number   int                 // of the generation
	id       string              // under which it was registered
	ranks    []live.Rank         // as it was registered
	ended    [][sha256.Size]byte // ids of older generations
	gen      *live.Generation    // nil: no process group has started
	agent    *agent.Agent
	control  *agent.Control
	plan     cluster.Plan // the newest
	sum      uint64       // of its shares, where there is a journal
	sizes    export.Sizes
	waiting  *cluster.Report // for its decision
	ran      map[int]cluster.Plan
	newest   cluster.Report
	rounds   int
	newestAt time.Time // of the newest report
	samples  int64
	counts   map[string]int64
	paces    paces
	problem  string
	refused  string      // why the newest registration was; the journal does not have it
	limits   map[int]int // that were changed since the last decision
	metrics  *jobMetrics // nil: it is being read from the journal
	shown    atomic.Pointer[shown]
	history  history.History
	born     time.Time // this object, which may have read an older one's journal

	wake chan struct{} // a report waits
	done chan struct{} // closed with the job
	over chan struct{} // closed by its goroutine
}

func newJob(name string, c *Config, m *jobMetrics) *job {
	j := &job{
		name: name, config: c, counts: map[string]int64{}, metrics: m, born: c.Clock(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), over: make(chan struct{}),
	}
	go j.run()
	return j
}

// begin is the job's first entry. Until then nobody else knows it.
func (j *job) begin(c *creation) {
	j.begun, j.created, j.settings = true, c.Created, c.Settings
	j.history.Note(0, "job", "the job was created")
	j.hold(firstToken(c))
}

// shared says whether other services may drive the job, too.
func (j *job) shared() bool { return j.config.Journal != nil && j.config.Journal.Shared() }

// run makes the job's decisions while nobody waits for them, until it is closed.
func (j *job) run() {
	defer close(j.over)
	for {
		select {
		case <-j.wake:
			j.mu.Lock()
			j.decideAll()
			if j.config.Journal != nil && j.failed == nil && j.since.long(j.config.every) {
				j.snap()
			}
			j.mu.Unlock()
		case <-j.done:
			return
		}
	}
}

// close ends the job's goroutine and waits for it. It is called once.
func (j *job) close() {
	close(j.done)
	<-j.over
}

// rouse wakes the job's goroutine.
func (j *job) rouse() {
	select {
	case j.wake <- struct{}{}:
	default: // it is awake
	}
}

// decideAll makes the decisions that are due after the newest entry. Called again, or later, it does the same.
func (j *job) decideAll() {
	if j.gen == nil {
		return
	}
	if report := j.waiting; report != nil {
		j.waiting = nil
		j.decide(report)
	}
	for {
		report := j.gen.Next(j.at)
		if report == nil {
			return
		}
		j.took(report)
		if !j.decide(report) {
			j.gen.Hand(j.plan, j.at) // the same sizes: rounds must go on
		}
	}
}

// decide plans by a report. It says whether there is a new plan.
func (j *job) decide(report *cluster.Report) bool {
	if j.paused {
		return false
	}
	begun := j.config.Clock()
	defer j.tell(report, j.ran[report.Plan])
	j.gen.Observe(report)
	plan, err := j.control.Next(report, j.gen.Present())
	if err != nil {
		j.problem = err.Error()
		j.history.Problem(j.at, j.problem)
		j.config.Log.Warn().Str("job", j.name).Int("generation", j.number).Int("round", report.Round).Err(err).Msg("no new sizes")
		return false
	}
	j.problem = ""
	j.history.Problem(j.at, "")
	j.hand(plan)
	j.history.Decided(j.at, &j.plan, report, j.control, j.agent.Performance())
	j.metrics.decided(j.config.Clock().Sub(begun))
	return true
}

// tell tells of a decision by the report of a round that ran a plan.
func (j *job) tell(report *cluster.Report, ran cluster.Plan) {
	if j.config.Each == nil || j.metrics == nil {
		return
	}
	e := Event{Job: j.name, Generation: j.number, Cluster: j.gen.Cluster(), Weights: j.settings.Objectives.objectives(), Limits: j.limits, Report: report, Ran: ran}
	j.limits = nil
	j.config.Each(e)
}

// hand makes a plan the newest.
func (j *job) hand(plan cluster.Plan) {
	plan = plan.Own()
	j.plan = plan
	if j.config.Journal != nil {
		j.sum = sum(&plan)
	}
	if j.config.Each != nil {
		j.ran[plan.Number] = plan
		delete(j.ran, plan.Number-live.Behind-1)
	}
	j.gen.Hand(plan, j.at)
	j.sizes = export.FromPlan(j.gen.Cluster(), j.number, plan, func(i int) string { return j.control.LeftOut(i).String() })
	j.show()
}

// forget ends the generation, and what belongs to it.
func (j *job) forget() {
	j.gen, j.agent, j.control, j.waiting, j.id, j.ranks = nil, nil, nil, nil, "", nil // without an id, so that it may register again
}

// took counts an accepted round.
func (j *job) took(report *cluster.Report) {
	j.rounds++
	j.refused = "" // a process group runs
	j.newestAt = j.created.Add(j.at)
	j.samples += int64(report.Accepted)
	took := measure(report)
	j.paces.add(took, j.number == 1 && report.Plan == 1, report.Round == 0)
	nodes := append(j.newest.Nodes[:0], report.Nodes...)
	j.newest = *report
	j.newest.Nodes = nodes
	j.history.Took(j.at, report, j.agent.Performance(), j.agent.NoiseScale())
	j.metrics.took(took)
	j.show()
}

// count counts a report by its verdict.
func (j *job) count(verdict string) {
	j.counts[verdict]++
	j.metrics.report(verdict)
}

// efficiency is what a sample of the newest round is worth to the model, 1 before the first.
func (j *job) efficiency() float64 {
	if j.newest.Counted == 0 {
		return 1
	}
	return cluster.Efficiency(j.agent.NoiseScale(), float64(j.gen.Cluster().GlobalBatch), j.newest.Counted)
}

// state describes the job, with its ranks or without.
func (j *job) state(ranks bool) JobState {
	of := j.settings
	if j.gen != nil {
		of = j.running
	}
	s := JobState{
		Name: j.name, GlobalBatch: of.GlobalBatch, Workload: of.Workload, Deadline: of.Deadline,
		Objectives: j.settings.Objectives, Paused: j.paused, Generation: j.number, Plan: j.plan.Number, Rounds: j.rounds, Samples: j.samples,
		Created: j.created, Reports: maps.Clone(j.counts), First: j.paces.begin(), Recent: paceOf(j.paces.recent), Efficiency: 1,
		Ranks: []RankState{}, LastReport: j.newestAt, Problem: j.problem,
	}
	if j.gen == nil {
		return s
	}
	c := j.gen.Cluster()
	s.NoiseScale = j.agent.NoiseScale()
	s.Efficiency = j.efficiency()
	s.RankCount, s.Absurd = len(c.Nodes), int64(history.Strange(j.control))
	perf := j.agent.Performance()
	for i := range c.Nodes {
		if j.sizes.Nodes[i].LeftOut != "" {
			s.LeftOut++
		}
		if !ranks {
			continue
		}
		n := &c.Nodes[i]
		r := RankState{
			Name: n.Name, Device: n.Device, Profiled: n.Profile != nil, Share: j.plan.Sizes[i], MicroBatch: n.Full(),
			PerSample: perf[i].PerSample, LeftOut: j.sizes.Nodes[i].LeftOut,
		}
		if len(j.newest.Nodes) == len(c.Nodes) {
			r.Seconds = j.newest.Nodes[i].Seconds
		}
		s.Ranks = append(s.Ranks, r)
	}
	return s
}
