package serve

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/cluster"
)

// maxEnded is how many older registrations are remembered, so that a process that outlived its group does not take over.
const maxEnded = 64

// job is a training job. It is what the entries of its journal make of it, in their order, and nothing else: whoever takes them in again comes to the
// same state. So decisions rest on the time of the newest entry (at) and never on the clock.
type job struct {
	name    string
	config  *Config
	created time.Time
	tokens  keyring
	inbox   inbox
	shown   atomic.Pointer[shown] // what /metrics shows
	born    time.Time             // of this object, which may have read the journal of an older one

	mu       sync.Mutex // guards what follows
	begun    bool       // its creation is known
	headless bool       // its first entries are cut off from the journal
	journal  jobJournal
	failed   error         // the journal does not hold what the job is: it has to be read anew
	at       time.Duration // of the newest entry, since created
	settings Settings      // of the job; weights hold at once, the others from the next generation on
	paused   bool
	ended    [][sha256.Size]byte // ids of older generations
	gen      generation
	record   record

	wake chan struct{} // a report waits
	done chan struct{} // closed with the job
	over chan struct{} // closed by its goroutine
}

func newJob(name string, c *Config, m *jobMetrics) *job {
	j := &job{
		name: name, config: c, born: c.Clock(), journal: jobJournal{config: c, job: name}, record: record{counts: map[string]int64{}, metrics: m},
		wake: make(chan struct{}, 1), done: make(chan struct{}), over: make(chan struct{}),
	}
	go j.run()
	return j
}

// begin takes in the job's first entry. Until then nobody else knows the job.
func (j *job) begin(c *creation) {
	j.begun, j.created, j.settings = true, c.Created, c.Settings
	j.record.history.Note(0, "job", "the job was created")
	j.tokens.set(firstToken(c))
}

// run makes the job's decisions while nobody waits for them, until the job is closed.
func (j *job) run() {
	defer close(j.over)
	for {
		select {
		case <-j.wake:
			j.mu.Lock()
			j.decideAll()
			if j.failed == nil && j.journal.snapshotDue() {
				j.journal.snap(j.snapshot())
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

// decideAll makes the decisions that are due after the newest entry. Calling it again, or later, changes nothing.
func (j *job) decideAll() {
	if !j.gen.runs() {
		return
	}
	if report := j.gen.waiting; report != nil {
		j.gen.waiting = nil
		j.decide(report)
	}
	for {
		report := j.gen.rounds.Next(j.at)
		if report == nil {
			return
		}
		j.took(report)
		if !j.decide(report) {
			j.gen.rounds.Hand(j.gen.plan, j.at) // the same sizes: rounds must go on
		}
	}
}

// decide plans by a report. It says whether there is a new plan.
func (j *job) decide(report *cluster.Report) bool {
	if j.paused {
		return false
	}
	g, begun := &j.gen, j.config.Clock()
	defer j.tell(report, g.ran[report.Plan])
	g.rounds.Observe(report)
	plan, err := g.control.Next(report, g.rounds.Present())
	if err != nil {
		g.problem = err.Error()
		j.record.history.Problem(j.at, g.problem)
		j.config.Log.Warn().Str("job", j.name).Int("generation", g.number).Int("round", report.Round).Err(err).Msg("no new sizes")
		return false
	}
	g.problem = ""
	j.record.history.Problem(j.at, "")
	j.hand(plan, report)
	j.record.metrics.decided(j.config.Clock().Sub(begun))
	return true
}

// tell reports a decision to Config.Each: the round's report, and the plan that it ran.
func (j *job) tell(report *cluster.Report, ran cluster.Plan) {
	if j.config.Each == nil || j.record.metrics == nil {
		return
	}
	e := Event{Job: j.name, Generation: j.gen.number, Cluster: j.gen.rounds.Cluster(), Weights: j.settings.Objectives.objectives(), Limits: j.gen.limits, Report: report, Ran: ran}
	j.gen.limits = nil
	j.config.Each(e)
}

// hand makes a plan the newest. It rests on a report, nil at a start.
func (j *job) hand(plan cluster.Plan, report *cluster.Report) {
	j.gen.hand(plan, j.at, j.config)
	j.show()
	j.record.history.Decided(j.at, &j.gen.plan, report, j.gen.control, j.gen.agent.Performance())
}

// took takes in an accepted round.
func (j *job) took(report *cluster.Report) {
	j.gen.took(report)
	j.record.took(j.created.Add(j.at), j.created, report, &j.gen)
	j.show()
}
