package cluster

import "testing"

func TestRuleString(t *testing.T) {
	for want, r := range map[string]Rule{"quorum 80% +3%": {0.8, 0.03}, "quorum 95%": {0.95, 0}, "quorum all": {1, 0.1}} {
		if got := r.String(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
