package serve

import "github.com/prometheus/client_golang/prometheus"

// gauges shows what the jobs are at when somebody asks. A job that is no longer here is not shown.
type gauges struct{ s *Server }

var (
	jobsNow    = prometheus.NewDesc("evenkeel_jobs", "Jobs that the service knows.", nil, nil)
	ranksNow   = prometheus.NewDesc("evenkeel_ranks", "Ranks of the job's newest process group.", []string{"job"}, nil)
	goodputNow = prometheus.NewDesc("evenkeel_goodput_samples_per_second", "Samples per second of the newest rounds, times what a sample is worth to the model.", []string{"job"}, nil)
	shareNow   = prometheus.NewDesc("evenkeel_node_share_samples", "Samples of the rank in the newest sizes (--node-metrics).", []string{"job", "node"}, nil)
	computeNow = prometheus.NewDesc("evenkeel_node_compute_seconds", "Time that the rank computed in the newest round (--node-metrics).", []string{"job", "node"}, nil)
)

// Describe is prometheus.Collector's.
func (gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsNow, ranksNow, goodputNow, shareNow, computeNow} {
		to <- d
	}
}

// Collect is prometheus.Collector's. It takes no job's lock, which may wait for the journal.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	show := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	show(jobsNow, float64(len(g.s.jobs)))
	for name, j := range g.s.jobs {
		now := j.shown.Load()
		if now == nil {
			continue // no process group has started
		}
		show(ranksNow, float64(now.ranks), name)
		show(goodputNow, now.goodput, name)
		for _, n := range now.nodes {
			show(shareNow, n.share, name, n.name)
			if n.seconds > 0 {
				show(computeNow, n.seconds, name, n.name)
			}
		}
	}
}

// shown is what gauges show of a job.
type shown struct {
	ranks   int
	goodput float64
	nodes   []shownNode // none unless each rank has metrics
}

type shownNode struct {
	name           string
	share, seconds float64
}

// show makes what gauges show of a job.
func (j *job) show() {
	if j.metrics == nil || j.gen == nil {
		return
	}
	c := j.gen.Cluster()
	now := &shown{ranks: len(c.Nodes), goodput: paceOf(j.paces.recent).SamplesPerSecond * j.efficiency()}
	if j.config.NodeMetrics && len(c.Nodes) <= mostNodes {
		for i := range c.Nodes {
			n := shownNode{name: c.Nodes[i].Name, share: float64(j.plan.Sizes[i])}
			if len(j.newest.Nodes) == len(c.Nodes) {
				n.seconds = j.newest.Nodes[i].Seconds
			}
			now.nodes = append(now.nodes, n)
		}
	}
	j.shown.Store(now)
}
