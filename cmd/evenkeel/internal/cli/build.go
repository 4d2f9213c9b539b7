package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build describes the build of the program. A field that is not known is "".
type Build struct {
	Version  string `json:"version"` // (devel) outside of a release
	Commit   string `json:"commit"`
	Date     string `json:"date"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"` // the sources differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ReadBuild returns the build that a release set; fields that are "" come from what the Go
// tool recorded.
func ReadBuild(version, commit, date string) Build {
	info, _ := debug.ReadBuildInfo()
	return readBuild(version, commit, date, info)
}

func readBuild(version, commit, date string, info *debug.BuildInfo) Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info != nil {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && b.Commit == "":
				b.Commit = s.Value
			case s.Key == "vcs.time" && b.Date == "":
				b.Date = s.Value
			case s.Key == "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "unknown")
	return b
}

// String is the build in a line: evenkeel v0.1.0 (commit ..., date, go1.26 linux/amd64).
func (b Build) String() string {
	text := "evenkeel " + b.Version + " ("
	if b.Commit != "" {
		text += "commit " + b.Commit
		if b.Modified {
			text += ", modified"
		}
		text += ", "
	}
	if b.Date != "" {
		text += b.Date + ", "
	}
	return text + fmt.Sprintf("%s %s)", b.Go, b.Platform)
}
