package plan

import (
	"fmt"
	"time"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/execute"
)

// keysCmd makes certificates.
type keysCmd struct {
	Out    string `help:"Folder to make; one that holds keys already is refused. Default: ${default}." default:"keys" placeholder:"DIR"`
	Stages int    `help:"How many stages the plan has." required:"" placeholder:"N"`
	Days   int    `help:"How long the certificates are valid. Default: ${default}." default:"30" placeholder:"N"`
}

// Help is shown under the flags.
func (*keysCmd) Help() string {
	return `A certificate and a private key for each stage, signed by an authority that is made for the purpose and whose own key is thrown
away. Each stage's machine needs ca.pem, its stage-K.pem and its stage-K-key.pem, and none of the others' keys.

  evenkeel plan keys --stages 3 --out keys
  evenkeel plan keys --stages 3 --out keys --days 365`
}

// Run makes them.
func (c *keysCmd) Run(a *cli.App) error {
	if c.Days < 1 || c.Days > 3650 {
		return badinput.Errorf("--days %d: want 1 to 3650", c.Days)
	}
	if c.Stages < 1 || c.Stages > execute.MaxStages {
		return badinput.Errorf("--stages %d: want 1 to %d", c.Stages, execute.MaxStages)
	}
	now := time.Now()
	valid := time.Duration(c.Days) * 24 * time.Hour
	if err := execute.MakeKeys(c.Out, c.Stages, now, valid); err != nil {
		return cli.FileError(err)
	}
	_, err := fmt.Fprintf(a.Out, `%s: certificates and keys of %s, valid until %s.

Give each stage's machine ca.pem, stage-K.pem and stage-K-key.pem, by a way that nobody else reads.
`, c.Out, cli.Count(c.Stages, "stage"), now.Add(valid).Format(time.DateTime))
	return err
}
