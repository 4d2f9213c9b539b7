package serve

import (
	"bufio"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scrape is what /metrics shows: a value per series, as the text has it.
func (c *client) scrape() map[string]float64 {
	c.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil)
	r.Header.Set("Authorization", "Bearer "+c.token)
	w := httptest.NewRecorder()
	c.to.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		c.t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	series := map[string]float64{}
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			c.t.Fatalf("%s: %v", line, err)
		}
		series[line[:at]] = v
	}
	return series
}

// What /metrics shows after three rounds of two ranks, reckoned by hand.
func TestMetrics(t *testing.T) {
	c, _ := newClient(t, Config{Version: "1.2", NodeMetrics: true, Journal: openJournal(t, t.TempDir())})
	sizes := c.start("job", "0123456789", 60, 2).Sizes // 30 and 30
	play := func(round int) {
		var a answer
		c.do("POST", "/v1/jobs/job/reports", report(sizes, round, 0.1, 0.2), &a)
	}
	for round := range 3 { // by the first sizes: 3 s and 6 s of compute, so 3 s of waiting
		play(round)
	}
	play(1)
	c.do("POST", "/v1/jobs/job/reports", object{}, nil)
	c.do("GET", "/v1/jobs/none", nil, nil)
	c.do("GET", "/nowhere", nil, nil)
	c.settle("job", 4)
	got := c.scrape()
	for name, want := range map[string]float64{
		`evenkeel_build_info{version="1.2"}`:                                        1,
		`evenkeel_jobs`:                                                             1,
		`evenkeel_ranks{job="job"}`:                                                 2,
		`evenkeel_reports_total{job="job",verdict="accepted"}`:                      3,
		`evenkeel_reports_total{job="job",verdict="duplicate"}`:                     1,
		`evenkeel_samples_total{job="job"}`:                                         180,
		`evenkeel_wait_seconds_total{job="job"}`:                                    9,
		`evenkeel_round_seconds_sum{job="job"}`:                                     18,
		`evenkeel_round_seconds_count{job="job"}`:                                   3,
		`evenkeel_goodput_samples_per_second{job="job"}`:                            10, // without norms a sample is a sample
		`evenkeel_decision_seconds_count{job="job"}`:                                3,
		`evenkeel_journal_append_seconds_count`:                                     5, // creation, start, three reports
		`evenkeel_http_request_duration_seconds_count{operation="register"}`:        1,
		`evenkeel_http_request_duration_seconds_count{operation="report"}`:          5,
		`evenkeel_http_request_duration_seconds_bucket{operation="report",le="10"}`: 5,
		`evenkeel_requests_refused_total{status="404"}`:                             2,
		`evenkeel_node_compute_seconds{job="job",node="a/0"}`:                       3,
		`evenkeel_node_compute_seconds{job="job",node="a/1"}`:                       6,
	} {
		if math.Abs(got[name]-want) > 1e-9*want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if a, b := got[`evenkeel_node_share_samples{job="job",node="a/0"}`], got[`evenkeel_node_share_samples{job="job",node="a/1"}`]; a+b != 60 || a <= b {
		t.Errorf("shares %v and %v", a, b)
	}
	if got["process_resident_memory_bytes"] == 0 || got["go_goroutines"] == 0 {
		t.Error("nothing of the process")
	}
	c.start("job", "another-id", 60, 2)
	if now := c.scrape(); now[`evenkeel_samples_total{job="job"}`] != 180 || now[`evenkeel_goodput_samples_per_second{job="job"}`] != 10 {
		t.Errorf("after another start: %v samples, %v a second", now[`evenkeel_samples_total{job="job"}`], now[`evenkeel_goodput_samples_per_second{job="job"}`])
	}
	c.do("DELETE", "/v1/jobs/job", nil, nil)
	for name := range c.scrape() {
		if strings.Contains(name, `job="job"`) {
			t.Errorf("after the job: %s", name)
		}
	}
}

// The cause of a slow rank, from what its reports say to what is shown of it.
func TestSlow(t *testing.T) {
	c, _ := newClient(t, Config{NodeMetrics: true})
	sizes := c.start("job", "0123456789", 60, 3).Sizes
	for round := range 60 {
		var a answer
		body := report(sizes, round, 0.1, 0.2, 0.1)
		for i, r := range body["ranks"].([]any) {
			r.(object)["input_seconds"], r.(object)["link_seconds"] = []float64{0.2, 0, 0}[i]*float64(sizes.Nodes[i].Share), []float64{1, 1, 9}[i]
		}
		body["wait_seconds"] = 60
		c.do("POST", "/v1/jobs/job/reports", body, &a)
		sizes = a.Sizes
	}
	c.settle("job", 60)
	var state JobState
	c.do("GET", "/v1/jobs/job", nil, &state)
	got := c.scrape()
	for i, want := range []string{"input", "compute", "network"} {
		if r := state.Ranks[i]; string(r.Cause) != want || !strings.HasPrefix(strings.ToLower(r.Remedy), want+": "+r.Name) {
			t.Errorf("%s: %q, %q; want %q", r.Name, r.Cause, r.Remedy, want)
		}
		if name := fmt.Sprintf(`evenkeel_node_slow{cause="%s",job="job",node="a/%d"}`, want, i); got[name] != 1 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
}

// Goodput counts what samples are worth: half a round of samples whose gradients are noisy is worth more than half of a round.
func TestGoodput(t *testing.T) {
	c, _ := newClient(t, Config{})
	sizes := c.start("job", "0123456789", 64, 2).Sizes
	for round := range 60 { // norms of gradients of 1 + 1000/n for n samples
		body := report(sizes, round, 0.1, 0.1)
		body["norm_squared"] = 1 + 1000./64
		for i, r := range body["ranks"].([]any) {
			r.(object)["norm_squared"] = 1 + 1000/float64(sizes.Nodes[i].Share)
		}
		if round == 59 {
			body["ranks"].([]any)[1] = nil
		}
		c.do("POST", "/v1/jobs/job/reports", body, nil)
	}
	state := c.settle("job", 0)
	want := state.Recent.SamplesPerSecond * (1000 + 64) / (1000 + 32)
	if got := c.scrape()[`evenkeel_goodput_samples_per_second{job="job"}`]; math.Abs(got-want) > 0.005*want || math.Abs(state.NoiseScale-1000) > 50 {
		t.Errorf("%v, want %v: %+v", got, want, state)
	}
}

// The number of series does not grow with ranks, paths, or what clients make up; with metrics of ranks it does up to 64.
func TestSeries(t *testing.T) {
	for _, x := range []struct {
		ranks, more int
		nodes       bool
	}{{2, 0, false}, {1000, 0, false}, {64, 64, true}, {65, 0, true}} {
		c, _ := newClient(t, Config{NodeMetrics: x.nodes})
		sizes := c.start("job", "0123456789", 4096, x.ranks).Sizes
		perSample := slices.Repeat([]float64{0.001}, x.ranks)
		c.do("POST", "/v1/jobs/job/reports", report(sizes, 0, perSample...), nil)
		c.settle("job", 2)
		c.do("GET", "/v1/jobs/none", nil, nil)
		c.scrape() // what the first call makes is there afterwards
		before := len(c.scrape())
		for k := range 100 {
			c.do("GET", fmt.Sprintf("/v1/jobs/none-%d", k), nil, nil)
			c.do("GET", fmt.Sprintf("/v2/%d", k), nil, nil)
		}
		after := c.scrape()
		if len(after) != before {
			t.Errorf("%d ranks: %d series, before %d", x.ranks, len(after), before)
		}
		own := 0
		for name := range after {
			if strings.HasPrefix(name, "evenkeel_node_") {
				own++
			}
		}
		if own != 3*x.more || own == 0 && len(after) > 250 {
			t.Errorf("%d ranks: %d series, %d of them of ranks: %v", x.ranks, len(after), own, slices.Sorted(maps.Keys(after))[:20])
		}
	}
}

// Whether a service is ready is whether its journal can be written, however its jobs do; many who ask are one that looks.
func TestReady(t *testing.T) {
	j := openJournal(t, t.TempDir())
	var now clock
	var log strings.Builder
	c, s := newClient(t, Config{Journal: j, Clock: now.read, Log: logTo(&log)})
	ready := func(want int) {
		t.Helper()
		if got := c.do("GET", "/readyz", nil, nil); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	now.now = now.now.Add(1)
	ready(200)
	before := s.ready.at
	now.now = now.now.Add(1)
	ready(200)
	if s.ready.at != before {
		t.Error("it looked again at once")
	}
	j.Close()
	ready(200) // of the second that was looked at
	now.now = now.now.Add(2e9)
	ready(503)
	ready(503)
	if n := strings.Count(log.String(), "the service is not ready"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	if got := c.do("GET", "/livez", nil, nil); got != http.StatusOK {
		t.Error(got)
	}
}
