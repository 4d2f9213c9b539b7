package plan

import (
	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
	"github.com/evenkeel/evenkeel/planner/peerprofile"
)

// convertCmd converts other planners' profiles.
type convertCmd struct {
	From        string  `help:"Format of the profile: sailor, metis, piper or galvatron." enum:"sailor,metis,piper,galvatron" required:"" placeholder:"PLANNER"`
	Path        string  `arg:"" help:"sailor: folder with DEVICE/profile.json; metis: folder with DeviceType.*.json; piper: its input file; galvatron: computation_profiling_*.json." placeholder:"PATH"`
	Info        string  `help:"sailor: llm_info.json." placeholder:"FILE"`
	MemoryFile  string  `help:"galvatron: memory_profiling_*.json." placeholder:"FILE"`
	Model       string  `help:"sailor: the model in --info." placeholder:"NAME"`
	Device      string  `help:"piper, galvatron: name of the device." default:"gpu" placeholder:"NAME"`
	Layers      int     `help:"galvatron: layers of the model." placeholder:"N"`
	OutputBytes float64 `help:"metis, galvatron: bytes of a sample that pass between layers (sequence length x hidden size x 2 or 4)." placeholder:"BYTES"`
	Out         string  `help:"Profile to write, .csv. Default: standard output." placeholder:"FILE"`
}

// Help is what --help adds.
func (*convertCmd) Help() string {
	return `Examples:

  evenkeel plan convert --from sailor profiles/OPT-350 --info llm_info.json --model OPT-350 --out layers.csv
  evenkeel plan convert --from metis profile_data --output-bytes 4194304 --out layers.csv
  evenkeel plan convert --from piper bert32a100.json --device a100 --out layers.csv
  evenkeel plan convert --from galvatron computation.json --memory-file memory.json --layers 32 --output-bytes 16777216 --device a100`
}

// Run runs the command.
func (c *convertCmd) Run(a *cli.App) error {
	need := func(flag string, missing bool) error {
		if missing {
			return badinput.Errorf("--%s is missing: --from %s requires it", flag, c.From)
		}
		return nil
	}
	var p *layerprofile.Profile
	var err error
	switch c.From {
	case "sailor":
		if err = need("info", c.Info == ""); err == nil {
			if err = need("model", c.Model == ""); err == nil {
				p, err = peerprofile.Sailor(c.Path, c.Info, c.Model)
			}
		}
	case "metis":
		if err = need("output-bytes", !(c.OutputBytes > 0)); err == nil {
			p, err = peerprofile.Metis(c.Path, peerprofile.MetisSizes{Output: c.OutputBytes})
		}
	case "piper":
		p, err = peerprofile.Piper(c.Path, c.Device)
	case "galvatron":
		for _, f := range []struct {
			flag    string
			missing bool
		}{{"memory-file", c.MemoryFile == ""}, {"layers", c.Layers < 1}, {"output-bytes", !(c.OutputBytes > 0)}} {
			if err = need(f.flag, f.missing); err != nil {
				return err
			}
		}
		p, err = peerprofile.Galvatron(c.Path, c.MemoryFile, peerprofile.GalvatronSizes{Device: c.Device, Layers: c.Layers, Output: c.OutputBytes})
	}
	if err != nil {
		return cli.FileError(err)
	}
	return writeProfile(a, p, c.Out)
}
