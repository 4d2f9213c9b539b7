package serve

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/serve"
	"evenkeel/serve/history"
)

func TestCauses(t *testing.T) {
	s := &serve.JobState{Ranks: []serve.RankState{{Name: "even"}, {Name: "slow", Cause: history.Input, Remedy: "Input: slow waits."}}}
	s.Recent.Exchange = 0.5
	if got := causes(s); !slices.Equal(got, []string{"Input: slow waits."}) {
		t.Error(got)
	}
	s.Recent.Exchange = 0.6
	if got := causes(s); !slices.Equal(got, []string{"Input: slow waits.", "Network: the exchange of gradients takes 60.0% of a round, after all ranks are done."}) {
		t.Error(got)
	}
	s.Ranks[1] = serve.RankState{Cause: history.Network, Remedy: "Network: slow."} // it says the rest
	if got := causes(s); !slices.Equal(got, []string{"Network: slow."}) {
		t.Error(got)
	}
	s.Recent.Idle = 0.68
	if got := causes(s); len(got) != 2 || !strings.HasPrefix(got[1], "Noise: ranks waited for one another in 8.0% of the newest rounds.") {
		t.Error(got)
	}
	s.EqualSteps = 2 // its rounds cannot have a deadline
	if got := causes(s); len(got) != 1 {
		t.Error(got)
	}
	s.EqualSteps, s.Deadline = 0, "auto"
	if got := causes(s); len(got) != 1 {
		t.Error(got)
	}
}
