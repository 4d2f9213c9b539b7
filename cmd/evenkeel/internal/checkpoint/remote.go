package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"evenkeel/checkpoint"
	"evenkeel/checkpoint/remote"
	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
)

// placeFlags say where checkpoints are kept. Keys come from the environment alone: a list of processes would show a flag.
type placeFlags struct {
	Endpoint string `help:"Server, such as https://host or http://host:port; default: AWS_ENDPOINT_URL, else Amazon's. The region comes from AWS_REGION, or is us-east-1." placeholder:"URL"`
}

func (p placeFlags) connect(flag, place string) (*remote.Store, error) {
	s, err := remote.Open(remote.Config{URL: place, Endpoint: p.Endpoint})
	if errors.Is(err, remote.ErrConfig) {
		return nil, badinput.Errorf("%s: %w", flag, err)
	}
	return s, err
}

type uploadCmd struct {
	fileArgs
	placeFlags
	To     string        `required:"" help:"Destination, such as s3://bucket/folder." placeholder:"PLACE"`
	Follow bool          `help:"Keep uploading the newest checkpoint while a job saves, until Ctrl-C."`
	Every  time.Duration `help:"With --follow: at most one upload in this time (${default})." default:"1m" placeholder:"DURATION"`
	Keep   int           `help:"Keep this many checkpoints there, and remove older ones; 0: keep all." default:"0" placeholder:"N"`
}

// Help is what --help adds.
func (*uploadCmd) Help() string {
	return `Verifies the newest checkpoint that all files have and uploads it, one safetensors file for each. For the name of a job of
several ranks, these are the files of its newest set. The upload counts once complete.json, which is written last, is there.
The job may go on saving. Keys are read from AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and not shown. With --follow failures are logged and tried again.

Examples:

  evenkeel checkpoint upload run.ckpt --to s3://models/run1
  evenkeel checkpoint upload run.ckpt --to s3://models/run1 --follow --every 10m --keep 3
  evenkeel checkpoint upload run.ckpt --to s3://models/run1 --endpoint http://127.0.0.1:9000`
}

// Run runs the command.
func (u *uploadCmd) Run(a *cli.App) error {
	if u.Keep < 0 || u.Every <= 0 {
		return badinput.Errorf("--keep: %d must not be negative, and --every: %v must be above 0", u.Keep, u.Every)
	}
	if err := (&fileArgs{Files: remote.Files(u.Files)}).check(); err != nil {
		return err
	}
	s, err := u.connect("--to", u.To)
	if err != nil {
		return err
	}
	defer s.Close()
	if u.Follow {
		s.Follow(a.Ctx, u.Files, u.Every, u.Keep, func(step uint64, uploaded bool, err error) {
			switch {
			case errors.Is(err, checkpoint.ErrEmpty):
				a.Log.Info().Msg("no checkpoint to upload yet")
			case err != nil:
				a.Log.Warn().Msg(err.Error() + "; it is tried again")
			case uploaded:
				a.Log.Info().Uint64("step", step).Msg("uploaded")
			}
		})
		return nil
	}
	_, clear := a.Progress("uploading")
	defer clear()
	step, uploaded, err := s.Upload(a.Ctx, u.Files)
	if err != nil {
		return cli.FileError(err)
	}
	if uploaded && u.Keep > 0 {
		if err := s.Prune(a.Ctx, u.Keep); err != nil {
			return err
		}
	}
	clear()
	said := "uploaded"
	if !uploaded {
		said = "was there already"
	}
	return cli.PrintLines(a.Out, []string{fmt.Sprintf("%s: step %d %s", u.To, step, said)})
}

type downloadCmd struct {
	placeFlags
	From string  `arg:"" help:"Source, such as s3://bucket/folder."`
	Out  string  `help:"Folder for the checkpoint files (${default})." default:"." placeholder:"FOLDER"`
	Step *uint64 `help:"Download this step; default: the newest that verifies." placeholder:"N"`
}

// Help is what --help adds.
func (*downloadCmd) Help() string {
	return `Creates the checkpoint files of a job under their old names, with one checkpoint; every byte is checked against its
checksum. If a file exists already, it is left as it is, and the command fails. The job restores from the new files as from its own.

Examples:

  evenkeel checkpoint download s3://models/run1
  evenkeel checkpoint download s3://models/run1 --step 12000 --out restored`
}

// Run runs the command.
func (d *downloadCmd) Run(a *cli.App) error {
	if info, err := os.Stat(d.Out); err != nil || !info.IsDir() {
		return badinput.Errorf("--out: %s is not a folder; make it first", d.Out)
	}
	s, err := d.connect("PLACE", d.From)
	if err != nil {
		return err
	}
	defer s.Close()
	_, clear := a.Progress("downloading")
	defer clear()
	got, faults, err := s.Download(a.Ctx, d.Out, d.Step, checkpoint.Options{})
	for _, f := range faults {
		a.Log.Warn().Msg("skipped: " + f.Error())
	}
	if d.Step != nil && errors.Is(err, remote.ErrNone) {
		steps, failed := s.Steps(a.Ctx)
		return errors.Join(fmt.Errorf("%w; steps there, newest first: %v", err, steps), failed)
	}
	if err != nil {
		return cli.FileError(err)
	}
	clear()
	lines := []string{fmt.Sprintf("step %d, every byte verified", got.Step)}
	for _, p := range got.Files {
		lines = append(lines, fmt.Sprintf("%s: %s", p.Name, humanize.IBytes(uint64(p.Bytes))))
	}
	return cli.PrintLines(a.Out, lines)
}
