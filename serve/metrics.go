package serve

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evenkeel/evenkeel/cluster"
)

// metrics are what /metrics shows.
type metrics struct {
	registry  *prometheus.Registry
	reports   *prometheus.CounterVec
	samples   *prometheus.CounterVec
	seconds   *prometheus.CounterVec
	decisions *prometheus.HistogramVec
	appends   prometheus.Histogram
	refused   *prometheus.CounterVec
}

func newMetrics(version string) *metrics {
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		reports:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_reports_total", Help: "Reports of rounds, by what became of them."}, []string{"job", "verdict"}),
		samples:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_samples_total", Help: "Samples in accepted rounds."}, []string{"job"}),
		seconds:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_round_seconds_total", Help: "Time of accepted rounds."}, []string{"job"}),
		decisions: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "evenkeel_decision_seconds", Help: "Time of a decision.", Buckets: prometheus.ExponentialBuckets(1e-5, 4, 10)}, []string{"job"}),
		appends:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "evenkeel_journal_append_seconds", Help: "Time until the journal has kept what happened.", Buckets: prometheus.ExponentialBuckets(1e-4, 4, 9)}),
		refused:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "evenkeel_requests_refused_total", Help: "Requests that were answered with a problem, by status."}, []string{"status"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "evenkeel_build_info", Help: "Version of the program; always 1.", ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.reports, m.samples, m.seconds, m.decisions, m.appends, m.refused, build)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// jobMetrics are a job's. Nil counts nothing: what is read from a journal was counted when it happened.
type jobMetrics struct {
	name      string
	all       *metrics
	samples   prometheus.Counter
	seconds   prometheus.Counter
	decisions prometheus.Observer
}

func (m *metrics) of(job string) *jobMetrics {
	return &jobMetrics{name: job, all: m, samples: m.samples.WithLabelValues(job), seconds: m.seconds.WithLabelValues(job), decisions: m.decisions.WithLabelValues(job)}
}

// forget drops the metrics of a job that is gone.
func (m *metrics) forget(job string) {
	of := prometheus.Labels{"job": job}
	m.reports.DeletePartialMatch(of)
	m.samples.DeletePartialMatch(of)
	m.seconds.DeletePartialMatch(of)
	m.decisions.DeletePartialMatch(of)
}

func (j *jobMetrics) report(verdict string) {
	if j != nil {
		j.all.reports.WithLabelValues(j.name, verdict).Inc()
	}
}

func (j *jobMetrics) decided(d time.Duration) {
	if j != nil {
		j.decisions.Observe(d.Seconds())
	}
}

func (j *jobMetrics) kept(d time.Duration) { j.all.appends.Observe(d.Seconds()) }

func (j *jobMetrics) took(r *cluster.Report) {
	if j != nil {
		j.samples.Add(float64(r.Accepted))
		j.seconds.Add(r.Wait.Seconds())
	}
}
