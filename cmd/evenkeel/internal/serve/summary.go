package serve

import (
	"fmt"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/serve"
	"evenkeel/serve/history"
)

// summary is the outcome of a command's job.
type summary struct {
	serve.JobState
	ExitStatus int `json:"exit_status"`
}

func newSummary(state serve.JobState, status int) *summary {
	return &summary{JobState: state, ExitStatus: status}
}

func (s *summary) lines() []string {
	if s.Generation == 0 && s.Problem != "" {
		return []string{fmt.Sprintf("%s: nothing was tuned; %s", s.Name, s.Problem)}
	}
	if s.Generation == 0 {
		return []string{fmt.Sprintf("%s: no process group registered; does the command use evenkeel.Tuner?", s.Name)}
	}
	lines := []string{fmt.Sprintf("%s: %s, global batch %d, %s, %d samples", s.Name, cli.Count(len(s.Ranks), "rank"), s.GlobalBatch, cli.Count(s.Rounds, "round"), s.Samples)}
	if s.Rounds == 0 {
		return append(append(lines, "No round was reported: nothing was tuned."), s.problem()...)
	}
	pace := func(what string, p serve.Pace) []string {
		if p.Rounds == 0 {
			return []string{what, "", "", ""}
		}
		return []string{what, cli.Rate(p.SamplesPerSecond), cli.Percent(p.Idle), fmt.Sprint(p.Rounds)}
	}
	lines = append(lines, cli.Table([]cli.Column{cli.Left(""), cli.Right("samples/s"), cli.Right("idle"), cli.Right("rounds")},
		[][]string{pace("with the first sizes", s.First), pace("in the newest rounds", s.Recent)})...)
	switch {
	case s.Gain >= 1:
		lines = append(lines, fmt.Sprintf("Gained: %.2f times the samples per second of equal shares, over the whole run.", s.Gain))
	case s.Gain > 0:
		lines = append(lines, fmt.Sprintf("Nothing was gained: %.2f times the samples per second of equal shares, over the whole run.", s.Gain))
	default:
		lines = append(lines, "Too few rounds to say what was gained.")
	}
	rows := [][]string{}
	for _, r := range s.Ranks {
		rows = append(rows, []string{r.Name, r.Device, fmt.Sprint(r.Share), cli.Seconds(r.Seconds), r.LeftOut})
	}
	lines = append(lines, cli.Table([]cli.Column{cli.Left("rank"), cli.Left("device"), cli.Right("share"), cli.Right("newest round"), cli.Left("")}, rows)...)
	return append(append(lines, causes(&s.JobState)...), s.problem()...)
}

// causes say what holds the job up.
func causes(s *serve.JobState) []string {
	var lines []string
	network := s.Recent.Exchange > 0.5
	for _, r := range s.Ranks {
		if r.Remedy != "" {
			lines = append(lines, r.Remedy)
		}
		network = network && r.Cause != history.Network
	}
	if network {
		lines = append(lines, fmt.Sprintf("Network: the exchange of gradients takes %s of a round, after all ranks are done.", cli.Percent(s.Recent.Exchange)))
	}
	if noise := s.Recent.Idle - s.Recent.Exchange; s.Deadline == "" && s.EqualSteps == 0 && noise > 0.05 {
		lines = append(lines, fmt.Sprintf("Noise: ranks waited for one another in %s of the newest rounds. A deadline may save about as much: --deadline auto, with micro-batches smaller than the shares.", cli.Percent(noise)))
	}
	return lines
}

// problem is a line about the job's problem, if there is one.
func (s *summary) problem() []string {
	if s.Problem == "" {
		return nil
	}
	return []string{"Sizes stopped changing: " + s.Problem}
}
