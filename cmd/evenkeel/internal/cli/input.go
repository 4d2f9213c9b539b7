package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"evenkeel/agent"
	"evenkeel/agent/clusters"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// FileError marks an error as bad input if a file that the user named is missing or may
// not be read.
func FileError(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return badinput.Wrap(err)
	}
	return err
}

// Interruption is the error of a command that Ctrl-C ended; hint says in a line what was
// kept.
type Interruption struct {
	cause error // wraps context.Canceled
	hint  string
}

func (i *Interruption) Error() string { return i.hint }
func (i *Interruption) Unwrap() error { return i.cause }

// Interrupted returns the error of a command that Ctrl-C ended.
func Interrupted(cause error, hint string) error { return &Interruption{cause: cause, hint: hint} }

// ProfileFlags are embedded by commands that read profiles.
type ProfileFlags struct {
	Profiles []string `help:"Profile file (.csv), or folder of them, to add to the embedded catalogue; replaces entries of the same device and workload. Repeatable." placeholder:"PATH" sep:"none"`
}

// Catalogue is the embedded one with the files added to it.
func (f *ProfileFlags) Catalogue() (*profile.Catalogue, error) {
	c := profile.Embedded()
	for _, path := range f.Profiles {
		err := c.Add(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, badinput.Errorf("--profiles: %s: no such file or folder", path)
		}
		if err != nil {
			return nil, FileError(err)
		}
	}
	return c, nil
}

// ClusterFlags are embedded by commands that work on one cluster.
type ClusterFlags struct {
	Cluster string `help:"Cluster file, or an embedded cluster (${clusters}); default: ${default}." default:"example" placeholder:"FILE|NAME"`
	ProfileFlags
}

// EqualFlag is embedded by commands that simulate rounds.
type EqualFlag struct {
	Equal bool `name:"equal-steps" help:"All nodes make the same number of micro-steps in a round, as FSDP, Megatron-LM and DeepSpeed need: the cluster file's equal_steps, or else the number with which the first round finishes soonest. A deadline of the file is left out."`
}

// SetEqualSteps gives c equal micro-steps if the flag is set and its file gave none.
func (f *EqualFlag) SetEqualSteps(name string, c *cluster.Cluster) error {
	if !f.Equal || c.EqualSteps() > 0 {
		return nil
	}
	steps, err := cluster.BestEqualSteps(c, c.Nominal())
	if err != nil {
		return badinput.Errorf("--equal-steps: %s: %w", name, err)
	}
	c.SetEqualSteps(steps)
	c.Collect = c.Collect.WithoutDeadline()
	return nil
}

// LoadCluster reads a cluster file, or an embedded one by name. The text goes into the run
// log. It is an error if a trace that the file names is one of the outputs.
func LoadCluster(name string, catalogue *profile.Catalogue, outputs ...File) (text []byte, f *clusterfile.File, c *cluster.Cluster, err error) {
	shown := name
	if slices.Contains(clusters.Names(), name) {
		shown = name + ".yaml"
		text, err = clusters.YAML(name)
	} else {
		text, err = readLimited(name, clusterfile.MaxBytes)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, badinput.Errorf("cluster %q: no such file, nor an embedded cluster (%s)", name, strings.Join(clusters.Names(), ", "))
	}
	if err != nil {
		return nil, nil, nil, FileError(err)
	}
	folder := filepath.Dir(name)
	if f, c, err = clusterfile.ReadIn(strings.NewReader(string(text)), shown, folder, catalogue); err != nil {
		return nil, nil, nil, err
	}
	if path := f.Conditions.Conditions.Replay.Path(folder); path != "" {
		err = CheckDistinct([]File{FileFlag("conditions.replay.file of "+shown, path)}, slices.DeleteFunc(slices.Clone(outputs), unset))
	}
	return text, f, c, err
}

// readLimited reads at most one byte more than limit, so that the parser sees that a file
// is too large.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// LoadPolicy reads a policy file, or the embedded policy for "".
func LoadPolicy(path string) (*agent.Trained, error) {
	if path == "" {
		return agent.Embedded()
	}
	t, err := agent.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badinput.Errorf("--policy: %s: no such file", path)
	}
	if errors.Is(err, agent.ErrPolicy) && !IsSafetensors(path) {
		return nil, badinput.Errorf("--policy: %s is not a policy file; evenkeel train writes one, policy.safetensors", path)
	}
	return t, FileError(err)
}

// IsSafetensors reports whether a file begins like one: eight bytes, then a JSON object.
func IsSafetensors(path string) bool {
	head, err := readLimited(path, 8)
	return err == nil && len(head) == 9 && head[8] == '{'
}

// IsTerminal reports whether f is a terminal on which text can be redrawn.
func IsTerminal(f *os.File) bool {
	return os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// Colours reports whether to colour output to f (no-color.org).
func Colours(f *os.File) bool { return os.Getenv("NO_COLOR") == "" && IsTerminal(f) }

// Only refuses flags that have no effect together with the given one.
func (a *App) Only(flag string, allowed ...string) error {
	for _, g := range a.Given {
		if !slices.Contains(allowed, g) {
			return badinput.Errorf("--%s has no effect with %s; leave it out", g, flag)
		}
	}
	return nil
}

// WriteJSON prints one document.
func (a *App) WriteJSON(v any) error {
	e := json.NewEncoder(a.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// BarDelay is how long work runs before a progress bar appears.
const BarDelay = 2 * time.Second

// Progress returns a function that reports progress, and one that removes the bar. Nothing
// is drawn for the first two seconds, or if standard error is not a terminal. Only one
// goroutine at a time may report, and none after the bar is removed.
func (a *App) Progress(what string) (report func(done, total int), clear func()) {
	if !IsTerminal(a.Errs) {
		return func(int, int) {}, func() {}
	}
	var bar *progressbar.ProgressBar
	begun := time.Now()
	report = func(done, total int) {
		if bar == nil {
			if time.Since(begun) < BarDelay {
				return
			}
			bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(a.Errs), progressbar.OptionSetDescription(what),
				progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set(done) // failing to draw a bar is no reason to stop
	}
	return report, func() {
		if bar != nil {
			_ = bar.Clear()
		}
	}
}

// WarnExtrapolated names the devices whose largest micro-step, for shares in node order,
// lies beyond the measured ones, all in one line.
func (a *App) WarnExtrapolated(c *cluster.Cluster, sizes []int) {
	type beyond struct {
		device     string
		size, last int
	}
	var all []beyond
	for i, b := range sizes {
		n := &c.Nodes[i]
		if n.Profile == nil || len(n.Profile.Points) == 0 {
			continue
		}
		last := n.Profile.Points[len(n.Profile.Points)-1].MicroBatch
		b = n.MicroBatch(b)
		if b <= last {
			continue
		}
		k := slices.IndexFunc(all, func(o beyond) bool { return o.device == n.Device })
		if k < 0 {
			all = append(all, beyond{n.Device, b, last})
		} else {
			all[k].size = max(all[k].size, b)
		}
	}
	switch len(all) {
	case 0:
	case 1:
		o := all[0]
		a.Log.Warn().Msgf("%s: micro-batch %d lies beyond the largest measured one, %d (extrapolated); measure up to %d", o.device, o.size, o.last, o.size)
	default:
		var each []string
		for _, o := range all {
			each = append(each, fmt.Sprintf("%s %d (measured up to %d)", o.device, o.size, o.last))
		}
		a.Log.Warn().Msgf("micro-batches beyond the largest measured ones (extrapolated): %s; measure up to these sizes", strings.Join(each, ", "))
	}
}

// WarnMemory names the devices without a known memory limit.
func (a *App) WarnMemory(c *cluster.Cluster) {
	var devices []string
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Limit == profile.NoLimit && !slices.Contains(devices, n.Device) {
			devices = append(devices, n.Device)
		}
	}
	if len(devices) > 0 {
		a.Log.Warn().Msgf("no memory limit known for %s: sizes are not checked against memory", strings.Join(devices, ", "))
	}
}

// Conditions are those of a preset that --conditions names.
func Conditions(name string) (cluster.Conditions, error) {
	if err := CheckNames("--conditions", []string{name}, cluster.Presets()); err != nil {
		return cluster.Conditions{}, err
	}
	return cluster.Preset(name)
}
