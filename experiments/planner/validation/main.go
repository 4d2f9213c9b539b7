// Command validation compares what evenkeel plan check predicts with measured training: the plans that Sailor's authors ran. It goes through the
// command line alone. Plans of one number of machines at a time are left out: the others make a calibration (evenkeel plan calibrate), by which those
// left out are predicted (evenkeel plan check --calibration), and they are predicted without a calibration as well.
//
//	go run ./experiments/planner/validation -data ../shared/data
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"evenkeel/experiments/internal/program"
)

func main() {
	data := flag.String("data", "../shared/data", "folder of the measurements")
	only := flag.Bool("estimated", false, "only what is estimated from data sheets")
	flag.Parse()
	program.Main(func(ctx context.Context) error {
		text, err := run(ctx, *data, *only)
		fmt.Print(text)
		return err
	})
}

func run(ctx context.Context, data string, only bool) (string, error) {
	root := data + "/planner/sailor"
	folder, err := os.MkdirTemp("", "validation")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	c := &command{ctx: ctx, folder: folder}
	if c.path, err = program.Evenkeel(ctx, folder); err != nil {
		return "", err
	}
	if only {
		return estimated(data, c)
	}
	var b strings.Builder
	for _, s := range sets {
		profile, err := readProfile(root+"/profiles/"+s.model, root+"/llm_info.json", s.model, s.standIn)
		if err != nil {
			return "", err
		}
		var layers bytes.Buffer
		if err := profile.WriteCSV(&layers); err != nil {
			return "", err
		}
		if err := os.WriteFile(c.file("layers.csv"), layers.Bytes(), 0o600); err != nil {
			return "", err
		}
		if err := s.score(&b, c, root); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// command runs evenkeel.
type command struct {
	ctx          context.Context
	folder, path string
}

func (c *command) file(name string) string { return filepath.Join(c.folder, name) }

// run returns what the command printed, with an error if its exit status is not 0.
func (c *command) run(args ...string) ([]byte, error) {
	return program.Output(c.ctx, "", c.path, args...)
}
