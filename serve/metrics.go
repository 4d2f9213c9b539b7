package serve

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"evenkeel/serve/history"
)

// mostNodes is how many ranks a job may have for metrics of each.
const mostNodes = 64

// metrics are what /metrics shows.
type metrics struct {
	registry  *prometheus.Registry
	reports   *prometheus.CounterVec
	samples   *prometheus.CounterVec
	waits     *prometheus.CounterVec
	rounds    *prometheus.HistogramVec
	decisions *prometheus.HistogramVec
	appends   prometheus.Histogram
	requests  *prometheus.HistogramVec
	refused   *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	ofJob := []string{"job"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		reports:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_reports_total", Help: "Reports of rounds, by what became of them."}, []string{"job", "verdict"}),
		samples:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_samples_total", Help: "Samples in accepted rounds."}, ofJob),
		waits:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_wait_seconds_total", Help: "Time that ranks waited for others in accepted rounds, summed over the ranks."}, ofJob),
		rounds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evenkeel_round_seconds", Help: "Time of accepted rounds.", Buckets: prometheus.ExponentialBuckets(0.002, 2, 18),
		}, ofJob),
		decisions: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "evenkeel_decision_seconds", Help: "Time of a decision.", Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10)}, ofJob),
		appends:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenkeel_journal_append_seconds", Help: "Time until the journal has kept what happened.", Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9)}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "evenkeel_http_request_duration_seconds", Help: "Time of a request, by operation of the API.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"operation"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_requests_refused_total", Help: "Requests that were answered with a problem, by status."}, []string{"status"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "evenkeel_build_info", Help: "Version of the program; always 1.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.reports, m.samples, m.waits, m.rounds, m.decisions, m.appends, m.requests, m.refused, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// timed measures requests by their operation, which are few; paths are as many as there are jobs.
func (s *Server) timed(ctx huma.Context, next func(huma.Context)) {
	begun := s.config.Clock()
	next(ctx)
	op, took := ctx.Operation().OperationID, s.config.Clock().Sub(begun)
	_, w := humago.Unwrap(ctx)
	if w.Header().Get("Content-Type") == "text/event-stream" {
		return // it lasts as long as somebody watches
	}
	s.metrics.requests.WithLabelValues(op).Observe(took.Seconds())
	if took > slowRequest {
		s.config.Log.Warn().Str("operation", op).Str("job", ctx.Param("job")).Int("status", ctx.Status()).Dur("took", took).Msg("a slow request")
	}
}

// slowRequest is the time of a request that is worth a line in the log.
const slowRequest = time.Second

// jobMetrics are a job's. Nil counts nothing: what is read from a journal was counted when it happened.
type jobMetrics struct {
	*metrics
	name string
}

// of are a job's metrics, which are 0 before anything happens.
func (m *metrics) of(job string) *jobMetrics {
	m.samples.WithLabelValues(job)
	m.waits.WithLabelValues(job)
	m.rounds.WithLabelValues(job)
	m.decisions.WithLabelValues(job)
	return &jobMetrics{m, job}
}

// forget drops the metrics of a job that is gone.
func (m *metrics) forget(job string) {
	of := prometheus.Labels{"job": job}
	for _, v := range []interface {
		DeletePartialMatch(prometheus.Labels) int
	}{m.reports, m.samples, m.waits, m.rounds, m.decisions} {
		v.DeletePartialMatch(of)
	}
}

func (j *jobMetrics) report(verdict string) {
	if j != nil {
		j.reports.WithLabelValues(j.name, verdict).Inc()
	}
}

func (j *jobMetrics) decided(d time.Duration) {
	if j != nil {
		j.decisions.WithLabelValues(j.name).Observe(d.Seconds())
	}
}

func (j *jobMetrics) kept(d time.Duration) { j.appends.Observe(d.Seconds()) }

func (j *jobMetrics) took(r round) {
	if j != nil {
		j.samples.WithLabelValues(j.name).Add(r.samples)
		j.waits.WithLabelValues(j.name).Add(r.idle)
		j.rounds.WithLabelValues(j.name).Observe(r.seconds)
	}
}

// gauges shows what the jobs are at when somebody asks. A job that is no longer here is not shown.
type gauges struct{ s *Server }

var (
	jobsNow    = prometheus.NewDesc("evenkeel_jobs", "Jobs that the service knows.", nil, nil)
	ranksNow   = prometheus.NewDesc("evenkeel_ranks", "Ranks of the job's newest process group.", []string{"job"}, nil)
	goodputNow = prometheus.NewDesc("evenkeel_goodput_samples_per_second", "Samples per second of the newest rounds, times what a sample is worth to the model.", []string{"job"}, nil)
	shareNow   = prometheus.NewDesc("evenkeel_node_share_samples", "Samples of the rank in the newest sizes (--node-metrics).", []string{"job", "node"}, nil)
	causeNow   = prometheus.NewDesc("evenkeel_node_slow", "1 for a rank that is slow, by its cause: input, compute, network or machine (--node-metrics).", []string{"job", "node", "cause"}, nil)
	inputNow   = prometheus.NewDesc("evenkeel_node_input_seconds", "Time that the rank's data took beyond its compute in the newest round (--node-metrics).", []string{"job", "node"}, nil)
	computeNow = prometheus.NewDesc("evenkeel_node_compute_seconds", "Time that the rank computed in the newest round (--node-metrics).", []string{"job", "node"}, nil)
)

// Describe is prometheus.Collector's.
func (gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsNow, ranksNow, goodputNow, shareNow, computeNow, inputNow, causeNow} {
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
			if n.cause != "" {
				show(causeNow, 1, name, n.name, string(n.cause))
			}
			if n.seconds > 0 {
				show(computeNow, n.seconds, name, n.name)
				show(inputNow, n.input, name, n.name)
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
	name                  string
	share, seconds, input float64
	cause                 history.Cause
}

// show makes what gauges show of a job.
func (j *job) show() {
	if j.record.metrics == nil || !j.gen.runs() {
		return
	}
	nodes := j.gen.nodes()
	now := &shown{ranks: len(nodes), goodput: paceOf(j.record.paces.recent).SamplesPerSecond * j.gen.efficiency()}
	if j.config.NodeMetrics && len(nodes) <= mostNodes {
		for i := range nodes {
			said := j.gen.report(i)
			cause, _ := j.record.history.Cause(i)
			now.nodes = append(now.nodes, shownNode{name: nodes[i].Name, cause: cause, share: float64(j.gen.plan.Sizes[i]), seconds: said.Seconds - said.Input, input: said.Input})
		}
	}
	j.shown.Store(now)
}
