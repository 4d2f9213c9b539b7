package serve

import (
	"slices"
	"strings"
	"testing"

	"evenkeel/serve"
)

func TestCauses(t *testing.T) {
	s := &serve.JobState{Ranks: []serve.RankState{
		{Name: "even", Seconds: 1, Input: 1},
		{Name: "starved", Seconds: 1, Input: 3},
	}}
	s.Recent.Exchange = 0.5
	if got := causes(s); len(got) != 1 || !strings.HasPrefix(got[0], "Input: starved waits for its data in 75.0% of its time.") {
		t.Error(got)
	}
	s.Ranks, s.Recent.Exchange = s.Ranks[:1], 0.6
	if got := causes(s); !slices.Equal(got, []string{"Network: the exchange of gradients takes 60.0% of a round, after all ranks are done."}) {
		t.Error(got)
	}
}
