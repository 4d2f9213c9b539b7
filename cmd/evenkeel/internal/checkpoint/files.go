package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/dustin/go-humanize"

	"evenkeel/checkpoint"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

type verifyCmd struct {
	fileArgs
	JSON    bool     `name:"json" help:"Print JSON."`
	Against []string `help:"Also compare with the checkpoint of another run, by checksums; its file, or the files of all its ranks." placeholder:"FILE"`
}

// Help is what --help adds.
func (*verifyCmd) Help() string {
	return `Exit status 0: every checkpoint, and every copy of the file's description, is intact. 1: something is damaged; the table shows what, and which
checkpoints are good. With --against, also 1: a step that both runs have differs, or they have none in common. Their numbers of ranks may differ;
then only arrays are compared.

Examples:

  evenkeel checkpoint verify run.ckpt
  evenkeel checkpoint verify run.ckpt --against again.ckpt
  evenkeel checkpoint verify run.0.ckpt run.1.ckpt --json`
}

// Run runs the command.
func (v *verifyCmd) Run(a *cli.App) error {
	out, err := v.inspect(a, true)
	if err != nil {
		return err
	}
	damaged := 0
	for _, one := range out {
		damaged += len(one.Damage)
		for _, s := range one.Slots {
			if s.Fault != "" {
				damaged++
			}
		}
	}
	if v.JSON {
		err = a.WriteJSON(map[string]any{"files": out, "damaged": damaged})
	} else {
		for _, one := range out {
			err = errors.Join(err, cli.PrintLines(a.Out, one.lines()))
		}
	}
	if err == nil && len(out) > 1 && !slices.ContainsFunc(out, func(i inspected) bool { return i.Ranks != len(out) }) {
		var done func()
		if _, done, err = v.open(a, "comparing (MiB)"); err == nil {
			done()
		}
	}
	if err == nil && damaged > 0 {
		err = fmt.Errorf("damaged places: %d: %w", damaged, checkpoint.ErrCorrupt)
	}
	if len(v.Against) > 0 {
		err = errors.Join(err, v.compare(a))
	}
	return err
}

// saved is a step of a run: the arrays' checksums, and the state of each rank's file.
type saved struct {
	arrays map[string]uint64
	ranks  []checkpoint.State
}

// compare says of each step that both runs have what differs.
func (v *verifyCmd) compare(a *cli.App) error {
	here, err := v.sums(a)
	if err != nil {
		return err
	}
	there, err := (&fileArgs{Files: v.Against}).sums(a)
	if err != nil {
		return err
	}
	var lines []string
	var fault error
	for _, step := range slices.Sorted(maps.Keys(here)) {
		x := here[step]
		y, both := there[step]
		if !both {
			continue
		}
		line, same := x.compare(y)
		line = fmt.Sprintf("step %d: %s", step, line)
		if !same {
			fault = fmt.Errorf("the runs differ: %s", line)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return fmt.Errorf("--against: no step is in both runs: %v here, %v there", slices.Sorted(maps.Keys(here)), slices.Sorted(maps.Keys(there)))
	}
	if !v.JSON {
		fault = errors.Join(cli.PrintLines(a.Out, lines), fault)
	}
	return fault
}

func (x saved) compare(y saved) (line string, same bool) {
	if len(x.ranks) != len(y.ranks) && ofDCP(x.ranks[0]) {
		return fmt.Sprintf("saved by DCP on %d ranks and on %d: the parts of tensors cannot be compared", len(x.ranks), len(y.ranks)), false
	}
	all := maps.Clone(x.arrays)
	maps.Copy(all, y.arrays)
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p, here := x.arrays[name]
		q, there := y.arrays[name]
		if p != q || here != there {
			differ = append(differ, name)
		}
	}
	if len(differ) > 0 {
		return fmt.Sprintf("%d of %d arrays differ between the runs, first %s", len(differ), len(all), differ[0]), false
	}
	line = fmt.Sprintf("all %d arrays are the same in both runs", len(all))
	if len(x.ranks) != len(y.ranks) {
		return line + "; nothing else was compared, as the numbers of ranks differ", true
	}
	for rank, s := range x.ranks {
		t := y.ranks[rank]
		var what string
		switch {
		case s.Cursor != t.Cursor:
			what = "the position in the data"
		case !maps.EqualFunc(s.Scalars, t.Scalars, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }):
			what = "a scalar"
		case !bytes.Equal(s.Random, t.Random):
			what = "what is no array (generators, plain values, small tensors of DCP)"
		default:
			continue
		}
		return fmt.Sprintf("%s; %s differs, rank %d", line, what, rank), false
	}
	return line + ", and all else", true
}

// ofDCP: its arrays are parts of tensors, and the small ones are not arrays.
func ofDCP(s checkpoint.State) bool { return bytes.HasPrefix(s.Random, []byte("EVKLDCP1")) }

// sums gives each step that all files have.
func (c *fileArgs) sums(a *cli.App) (map[uint64]saved, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s, done, err := c.open(a, "comparing (MiB)")
	if err != nil {
		return nil, err
	}
	defer done()
	out := map[uint64]saved{}
steps:
	for _, slot := range s.Files()[0].Slots() {
		all := saved{arrays: map[string]uint64{}}
		for _, f := range s.Files() {
			one, state, err := f.Sums(slot.Step)
			if err != nil { // damage is reported by verify itself
				continue steps
			}
			maps.Copy(all.arrays, one)
			all.ranks = append(all.ranks, state)
		}
		out[slot.Step] = all
	}
	return out, nil
}

type exportCmd struct {
	fileArgs
	Out  string  `required:"" help:"File to write (.safetensors)." placeholder:"FILE"`
	Step *uint64 `help:"Export this step; default: the newest intact one." placeholder:"N"`
}

// Help is what --help adds.
func (*exportCmd) Help() string {
	return `Every byte is verified before it is written. Step, data position, random states and scalars go into the metadata. PyTorch reads the file with
safetensors.torch.load_file("model.safetensors").

Examples:

  evenkeel checkpoint export run.ckpt --out model.safetensors
  evenkeel checkpoint export run.0.ckpt run.1.ckpt --step 1200 --out model.safetensors`
}

// Run runs the command.
func (e *exportCmd) Run(a *cli.App) error {
	if err := e.check(); err != nil {
		return err
	}
	var inputs []cli.File
	for _, f := range e.Files {
		inputs = append(inputs, cli.FileFlag("FILE", f))
	}
	if err := cli.CheckFiles(inputs, []cli.File{cli.FileFlag("--out", e.Out)}); err != nil {
		return err
	}
	s, done, err := e.open(a, "reading (MiB)")
	if err != nil {
		return err
	}
	defer done()
	var arrays []checkpoint.Array
	for _, f := range s.Files() {
		for _, x := range f.Arrays() {
			x.Data = make([]byte, x.Len())
			arrays = append(arrays, x)
		}
	}
	var state checkpoint.State
	if e.Step != nil {
		state, err = s.RestoreStep(arrays, *e.Step)
	} else {
		var reports []checkpoint.Report
		state, reports, err = s.Restore(arrays)
		warnFaults(a, s.Files(), reports)
	}
	if err != nil {
		return err
	}
	if ofDCP(state) {
		return fmt.Errorf("%s: step %d was saved by torch.distributed.checkpoint: load it with evenkeel.dcp.Reader", e.Files[0], state.Step)
	}
	if err := cli.WriteFile(e.Out, func(w io.Writer) error { return checkpoint.WriteSafetensors(w, arrays, state) }); err != nil {
		return fmt.Errorf("write %s: %w", e.Out, err)
	}
	done()
	return cli.PrintLines(a.Out, []string{fmt.Sprintf("%s: step %d, %d arrays", e.Out, state.Step, len(arrays))})
}

type importCmd struct {
	fileArgs
	From string  `required:"" help:"safetensors file to read." placeholder:"FILE"`
	Step *uint64 `help:"Step of the checkpoint; default: the step in the file, or 0." placeholder:"N"`
}

// Help is what --help adds.
func (*importCmd) Help() string {
	return `The new checkpoint file has the model as its first checkpoint. All of its space on the disk is allocated at once, so that later saves need no more
(unless the file system copies blocks when they are written). Moments of an optimizer are arrays too: a file without them cannot continue a run.

Examples:

  evenkeel checkpoint import --from model.safetensors run.ckpt
  evenkeel checkpoint import --from model.safetensors --step 1200 run.0.ckpt run.1.ckpt`
}

// leastRoom is the room for random states and scalars in a file that is made, in bytes; more if the first ones need it.
const leastRoom = 64 << 10

// Run runs the command.
func (i *importCmd) Run(a *cli.App) error {
	if err := cli.CheckFiles([]cli.File{cli.FileFlag("--from", i.From)}, nil); err != nil {
		return err
	}
	if !cli.IsSafetensors(i.From) {
		return badinput.Errorf("--from: %s is not a safetensors file", i.From)
	}
	arrays, state, err := readSafetensors(i.From)
	if err != nil {
		return err
	}
	if i.Step != nil {
		state.Step = *i.Step
	}
	room := len(state.Random)
	for name := range state.Scalars {
		room += 10 + len(name)
	}
	report, clear := a.Progress("allocating (MiB)")
	defer clear()
	for _, p := range i.Files {
		if _, err := os.Lstat(p); err == nil {
			return badinput.Errorf("%s: %w; choose another name, or remove it", p, fs.ErrExist)
		}
	}
	s, err := checkpoint.CreateSet(i.Files, arrays, checkpoint.Options{StateBytes: max(room, leastRoom), Progress: inBytes(report)})
	if err != nil {
		return cli.FileError(err)
	}
	clear()
	if err := commit(a, s, arrays, state); err != nil {
		return errors.Join(err, s.Close())
	}
	if err := s.Close(); err != nil {
		return err
	}
	bytes := int64(0)
	for _, a := range arrays {
		bytes += a.Len()
	}
	return cli.PrintLines(a.Out, append(made(s), fmt.Sprintf("step %d, %s, verified when it is read", state.Step, humanize.IBytes(uint64(bytes)))))
}

func readSafetensors(path string) ([]checkpoint.Array, checkpoint.State, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, checkpoint.State{}, cli.FileError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, checkpoint.State{}, err
	}
	arrays, state, err := checkpoint.ReadSafetensors(f, info.Size())
	if err != nil {
		return nil, state, fmt.Errorf("%s: %w", path, err)
	}
	return arrays, state, nil
}

// made describes the files that were created.
func made(s *checkpoint.Set) []string {
	var lines []string
	for _, f := range s.Files() {
		i := f.Info()
		lines = append(lines, fmt.Sprintf("%s: %d arrays of %s together, %s on the disk", f.Path(), i.Arrays, humanize.IBytes(uint64(i.Bytes)), humanize.IBytes(uint64(i.FileBytes))))
		if i.CopiesOnWrite != "" {
			lines = append(lines, "  note: "+i.CopiesOnWrite+"; a save can fail for want of space, and is slower. ext4 and XFS write in place")
		}
	}
	return lines
}

// commit saves one checkpoint and waits until it is durable.
func commit(a *cli.App, s *checkpoint.Set, arrays []checkpoint.Array, state checkpoint.State) error {
	save, err := s.Begin(a.Ctx, state.Step)
	if err != nil {
		return err
	}
	for _, x := range arrays {
		if err := save.Write(x.Name, x.Data); err != nil {
			return err
		}
	}
	if err := save.Commit(state); err != nil {
		return err
	}
	return save.Wait(a.Ctx)
}

// warnFaults warns of checkpoints that were not restored.
func warnFaults(a *cli.App, files []*checkpoint.File, reports []checkpoint.Report) {
	for i, report := range reports {
		for _, d := range report.Damage {
			a.Log.Warn().Str("file", files[i].Path()).Msg(d)
		}
		for _, s := range report.Slots {
			if s.Fault != "" {
				a.Log.Warn().Str("file", files[i].Path()).Int("slot", s.Slot).Msgf("not restored: %s", s.Fault)
			}
		}
	}
}
