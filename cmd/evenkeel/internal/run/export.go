package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"evenkeel/agent/export"
	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// ExportCmd writes sizes for a trainer.
type ExportCmd struct {
	cli.ClusterFlags
	Format   string `help:"One of ${formats} (${default})." default:"json" placeholder:"NAME"`
	Out      string `help:"File to write; default: standard output." placeholder:"FILE"`
	Log      string `help:"Sizes by what a run log has measured. Without --cluster the cluster is the log's." placeholder:"FILE"`
	Equal    bool   `name:"equal-steps" help:"All ranks make the same number of micro-steps, as FSDP, Megatron-LM and DeepSpeed need; a deadline is left out. Always so with --format deepspeed."`
	Deadline string `help:"When every node hands in what it has, instead of the cluster file's deadline or quorum: 2s, 110% of the predicted time, or auto (a round has the global batch on average)." placeholder:"D"`
	scalingFlags
}

// Help is what --help adds.
func (*ExportCmd) Help() string {
	text := `The sizes follow from the profiles: the split with the smallest finish time by what was measured of each device. With --log they follow from what a
run log has measured of each node, as the agent would judge it. evenkeel run --export writes the sizes at the end of a simulated run.

If the agent chose the global batch, a factor for the learning rate is written too. docs/guides/trainers.md shows how each trainer uses both.

Formats:

`
	for _, f := range export.Formats() {
		text += fmt.Sprintf("  %-11s %s\n", f.Name, f.Description)
	}
	return text + `
Examples:

  evenkeel export --cluster my.yaml --profiles my.csv                           # by the profiles
  evenkeel export --cluster my.yaml --format torchrun --out sizes.sh
  evenkeel export --cluster my.yaml --equal-steps --out sizes.json              # for FSDP
  evenkeel export --cluster my.yaml --deadline auto --out sizes.json            # for evenkeel.tuner.deadline in Python
  evenkeel export --log run.jsonl --format deepspeed --out deepspeed.json       # by what was measured
  evenkeel export --format kubernetes | kubectl apply -f -`
}

// Run runs the command.
func (e *ExportCmd) Run(a *cli.App) error {
	if err := e.check(a); err != nil {
		return err
	}
	end, err := e.end(a)
	if err != nil {
		return err
	}
	form, err := export.Find(e.Format)
	if err != nil {
		return err
	}
	end.Equal = e.Equal || form.Equal
	sizes, err := export.FromRun(end, e.LRScaling)
	if err != nil {
		return err
	}
	final := make([]int, len(sizes.Nodes))
	for i, n := range sizes.Nodes {
		final[i] = n.Share
	}
	a.WarnExtrapolated(end.Cluster, final)
	warnLeftOut(a, sizes)
	e.warnForm(a, form, end.Cluster)
	if e.Out == "" {
		return export.Write(a.Out, e.Format, sizes)
	}
	if err := export.Save(e.Out, e.Format, sizes); err != nil {
		return err
	}
	a.Log.Info().Str("file", e.Out).Str("format", e.Format).Msg("sizes written")
	return nil
}

// warnForm says what of the round rule the form, or the trainers that read it, cannot carry out.
func (e *ExportCmd) warnForm(a *cli.App, form export.Format, c *cluster.Cluster) {
	if form.AllReduce && closesEarly(c) {
		a.Log.Warn().Msgf("an all-reduce waits for every rank: %s cannot end a round by a quorum; use collect: {deadline: auto} instead", e.Format)
	}
	if form.AllReduce && c.Collect.TimeoutShare > 0 {
		a.Log.Warn().Msg("a plain all-reduce hangs until its own timeout if a rank says nothing; collect.timeout as a share of the deadline is for trainers that go on without it")
	}
	if c.Collect.Timed() && form.NoDeadline != "" {
		instead := withDeadline() + " have what each rank needs"
		if form.AllReduce {
			instead = "leave collect.deadline out, or train in plain PyTorch"
		}
		a.Log.Warn().Msgf("%s; %s", form.NoDeadline, instead)
	}
}

// withDeadline lists the formats that carry a deadline.
func withDeadline() string {
	var able []string
	for _, f := range export.Formats() {
		if f.NoDeadline == "" {
			able = append(able, f.Name)
		}
	}
	last := len(able) - 1
	return strings.Join(able[:last], ", ") + " and " + able[last]
}

// warnLeftOut names the nodes that are no ranks.
func warnLeftOut(a *cli.App, sizes export.Sizes) {
	var out []string
	for _, n := range sizes.Nodes {
		if n.Share == 0 {
			out = append(out, n.Name)
		}
	}
	if len(out) > 0 {
		a.Log.Warn().Msgf("no share for %s: the others finish a round sooner alone; start no rank there", some(out))
	}
}

// check refuses flags without an effect, and files that cannot be read or written.
func (e *ExportCmd) check(a *cli.App) error {
	inputs := clusterInputs(&e.ClusterFlags)
	if e.Log != "" {
		log := cli.FileFlag("--log of the run", e.Log)
		if slices.Contains(a.Given, "cluster") {
			inputs = append(inputs, log)
		} else {
			inputs = []cli.File{log}
			for _, g := range []string{"deadline", "profiles"} {
				if slices.Contains(a.Given, g) {
					return badinput.Errorf("--%s has no effect with --log alone, which holds its own; leave it out, or add --cluster", g)
				}
			}
		}
	}
	if err := errors.Join(checkFormat("--format", e.Format), e.scalingFlags.check()); err != nil {
		return err
	}
	return cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", e.Out)})
}

// end is what the sizes follow from.
func (e *ExportCmd) end(a *cli.App) (export.Run, error) {
	var c *cluster.Cluster
	var file *clusterfile.File
	if e.Log == "" || slices.Contains(a.Given, "cluster") {
		catalogue, err := e.Catalogue()
		if err != nil {
			return export.Run{}, err
		}
		if _, file, c, err = cli.LoadCluster(e.Cluster, catalogue, cli.FileFlag("--out", e.Out)); err != nil {
			return export.Run{}, err
		}
		if err := (&rule{Deadline: e.Deadline}).collect(file.Collect, c); err != nil {
			return export.Run{}, err
		}
	}
	end := export.Run{Cluster: c}
	var err error
	if e.Log != "" {
		end, err = readLog(a, e.Log, c)
	} else if err = profiled(e.Cluster, file, c); err == nil {
		end.GlobalBatch, end.Performance = c.GlobalBatch, c.Nominal()
	}
	if err != nil {
		return end, err
	}
	a.WarnMemory(end.Cluster)
	return end, nil
}

// profiled refuses nodes of which nothing was measured.
func profiled(path string, file *clusterfile.File, c *cluster.Cluster) error {
	i := slices.IndexFunc(c.Nodes, func(n cluster.Node) bool { return n.Profile == nil })
	if i < 0 {
		return nil
	}
	group := slices.IndexFunc(file.Nodes, func(g clusterfile.Group) bool { return g.Profiled != nil && !*g.Profiled })
	return badinput.Errorf("%s: nodes[%d].profiled: is false, so nothing is known of the speed of %s; take it out to go by the profile of %s, or give --log of a run that measured the node",
		path, group, c.Nodes[i].Name, c.Nodes[i].Device)
}

// FormatNames lists the formats of export for help texts.
func FormatNames() string {
	var names []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
