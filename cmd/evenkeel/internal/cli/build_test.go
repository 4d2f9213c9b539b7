package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "true"},
	}}
	end := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	for _, c := range []struct {
		version, commit, date string
		info                  *debug.BuildInfo
		want                  string
	}{
		{"", "", "", recorded, "evenkeel (devel) (commit abc, modified, 2026-01-02T03:04:05Z, "},
		{"v1.2.3", "def", "2026-03-01", &debug.BuildInfo{}, "evenkeel v1.2.3 (commit def, 2026-03-01, "},
		{"", "", "", &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}, "evenkeel v0.1.0 ("},
		{"", "", "", nil, "evenkeel unknown ("},
	} {
		if got := readBuild(c.version, c.commit, c.date, c.info).String(); got != c.want+end {
			t.Errorf("%s, want %s", got, c.want+end)
		}
	}
}
