package forward

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/forward"
)

// summary is the JSON document.
type summary struct {
	Steps        int           `json:"steps"`
	Of           int           `json:"of"` // larger than Steps: the run was asked to stop
	Processors   int           `json:"processors"`
	Directions   int           `json:"directions"`
	Model        string        `json:"model"`
	Data         string        `json:"data"`
	Weights      int           `json:"weights"`
	Loss         float64       `json:"loss"`          // on the samples held out
	TestAccuracy float64       `json:"test_accuracy"` // the same
	Seconds      float64       `json:"seconds"`       // of this process
	Sent         float64       `json:"bytes_sent_per_step"`
	Received     float64       `json:"bytes_received_per_step"`
	Wire         *onWire       `json:"transport,omitempty"` // between processes
	Forwards     int64         `json:"forwards"`            // of two inputs, by all processors of this process
	Missed       int64         `json:"steps_missed"`        // by processors
	Absent       []int         `json:"absent_steps"`        // by pair: steps of the run in which it did not count
	LeftOut      []int64       `json:"left_out"`            // by pair: times that a loss of NaN or infinity, or a spike, left it out
	Ignored      map[int]int64 `json:"ignored,omitempty"`   // by rank that sent them: messages that did not count
	WeightsHash  []string      `json:"weights_hash"`        // one per processor
	Validation   *validated    `json:"validation,omitempty"`
	Log          string        `json:"log,omitempty"`
	LogBytes     int64         `json:"log_bytes"`

	counted int // processors
	missing int // processors without a result
}

// add adds the statistics of a processor over so many steps.
func (s *summary) add(t forward.Stats, in int) {
	s.counted++
	steps := float64(max(in, 1))
	s.Sent += (float64(t.Sent)/steps - s.Sent) / float64(s.counted)
	s.Received += (float64(t.Received)/steps - s.Received) / float64(s.counted)
	s.Forwards += t.Forwards
	s.Missed += t.Missed
	for rank, n := range t.Ignored {
		s.Ignored[rank] = max(s.Ignored[rank], n)
	}
	for pair, n := range t.LeftOut[:min(len(t.LeftOut), len(s.LeftOut))] { // another program may send fewer, or more
		s.LeftOut[pair] = max(s.LeftOut[pair], n)
	}
}

// absence is an error if pairs were absent more than half of the time, in the mean.
func (s *summary) absence() error {
	absent := 0
	for _, n := range s.Absent {
		absent += n
	}
	if pairs := len(s.Absent); 2*absent > pairs*s.Steps {
		return fmt.Errorf("over %d steps, the %d pairs were absent %s of the time (absent_steps): the weights are those of a smaller run", s.Steps, pairs, cli.Percent(float64(absent)/float64(pairs*s.Steps)))
	}
	return nil
}

// away describes which pairs were absent, and for how long.
func (s *summary) away() string {
	text := ""
	for pair, n := range s.Absent {
		if n > 0 {
			text += fmt.Sprintf("\n                pair %d was absent in %d of %d steps", pair, n, s.Steps)
		}
	}
	for pair, n := range s.LeftOut {
		if n > 0 {
			text += fmt.Sprintf("\n                pair %d was left out %d times: a loss was NaN, infinite, or far from the others", pair, n)
		}
	}
	if text == "" {
		return "all pairs in all steps"
	}
	return strings.TrimSpace(text)
}

// onWire is the traffic of a processor in a step, including what NATS, its acknowledgements and TLS add to the frames.
type onWire struct {
	Sent     float64 `json:"bytes_sent_per_step"`
	Received float64 `json:"bytes_received_per_step"`
}

// addTraffic adds the traffic of a processor, after add.
func (s *summary) addTraffic(j joined) {
	if s.Wire == nil {
		s.Wire = &onWire{}
	}
	steps := float64(max(j.Steps-j.Joined, 1))
	s.Wire.Sent += (float64(j.Sent)/steps - s.Wire.Sent) / float64(s.counted)
	s.Wire.Received += (float64(j.Received)/steps - s.Wire.Received) / float64(s.counted)
}

func (s *summary) same() bool {
	return !slices.ContainsFunc(s.WeightsHash, func(h string) bool { return h != s.WeightsHash[0] })
}

func (s *summary) print(a *cli.App, asJSON bool) error {
	if !s.same() {
		return fmt.Errorf("the processors' weights differ: %v; please report this run with its flags", s.WeightsHash)
	}
	if asJSON {
		return a.WriteJSON(s)
	}
	same := fmt.Sprintf("the same on all %d processors", s.counted)
	if s.missing > 0 {
		same = fmt.Sprintf("the same on %d processors; %d did not report theirs", s.counted, s.missing)
	}
	log := "none; --log writes one"
	if s.Log != "" {
		log = fmt.Sprintf("%s, %s for the complete run", s.Log, humanize.Bytes(uint64(s.LogBytes)))
	}
	transport := ""
	if s.Wire != nil {
		transport = fmt.Sprintf("\n                %.0f and %.0f including transport overhead", s.Wire.Sent, s.Wire.Received)
	}
	stopped := ""
	if s.Validation != nil {
		stopped = fmt.Sprintf("\nvalidation      lowest loss %.4f after %d steps", s.Validation.Loss, s.Validation.At)
		if s.Log != "" && s.Validation.At < s.Steps {
			stopped += fmt.Sprintf("; evenkeel forward replay %s --steps %d has its weights", s.Log, s.Validation.At)
		}
	}
	if s.Steps < s.Of {
		stopped += fmt.Sprintf("\nstopped         after %d of %d steps", s.Steps, s.Of)
	}
	_, err := fmt.Fprintf(a.Out, `%d steps in %s on %s: %s, %s weights.

test accuracy   %s
test loss       %.4f%s
forward passes  %s of two inputs, %s a second
on the wire     %.0f bytes sent and %.0f received by each processor in a step%s
present         %s
weights         %s, %s
log             %s
`, s.Steps, cli.Seconds(s.Seconds), s.Data, s.Model, humanize.Comma(int64(s.Weights)), cli.Percent(s.TestAccuracy), s.Loss, stopped,
		humanize.Comma(s.Forwards), cli.Rate(float64(s.Forwards)/max(s.Seconds, 1e-9)), s.Sent, s.Received, transport, s.away(), s.WeightsHash[0], same, log)
	return err
}
