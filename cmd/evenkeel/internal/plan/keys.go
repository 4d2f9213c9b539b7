package plan

import (
	"fmt"
	"time"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/planner/execute"
)

type keysCmd struct {
	Out    string `help:"Folder to create. A folder that has keys already is refused. Default: ${default}." default:"keys" placeholder:"DIR"`
	Stages int    `help:"Number of stages of the plan." required:"" placeholder:"N"`
	Days   int    `help:"Days for which the certificates are valid. Default: ${default}." default:"30" placeholder:"N"`
}

// Help is what --help adds.
func (*keysCmd) Help() string {
	return `Creates a certificate and a private key for each stage, signed by a new authority whose own key is discarded. The machine of
stage K needs ca.pem, stage-K.pem and stage-K-key.pem, and must not have any other key.

Examples:

  evenkeel plan keys --stages 3 --out keys
  evenkeel plan keys --stages 3 --out keys --days 365`
}

// Run runs the command.
func (c *keysCmd) Run(a *cli.App) error {
	if c.Days < 1 || c.Days > 3650 {
		return badinput.Errorf("--days %d: must be 1 to 3650", c.Days)
	}
	if c.Stages < 1 || c.Stages > execute.MaxStages {
		return badinput.Errorf("--stages %d: must be 1 to %d", c.Stages, execute.MaxStages)
	}
	now := time.Now()
	valid := time.Duration(c.Days) * 24 * time.Hour
	if err := execute.MakeKeys(c.Out, c.Stages, now, valid); err != nil {
		return cli.FileError(err)
	}
	_, err := fmt.Fprintf(a.Out, `%s: certificates and keys of %s, valid until %s.

Copy ca.pem, stage-K.pem and stage-K-key.pem to the machine of stage K over a secure channel.
`, c.Out, cli.Count(c.Stages, "stage"), now.Add(valid).Format(time.DateTime))
	return err
}
