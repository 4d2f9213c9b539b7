package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"evenkeel/cmd/evenkeel/internal/cli"
	"evenkeel/internal/badinput"
	"evenkeel/serve"
)

// beside runs the service for the life of one command.
func (c *Cmd) beside(a *cli.App, config serve.Config, certs *certificates) error {
	if config.Token == "" { // loopback is open to everybody on this machine
		config.Token = rand.Text()
	}
	var log *jobLog
	if c.Log != "" {
		var err error
		if log, err = newJobLog(c.Log, config.Version, c.Policy); err != nil {
			return err
		}
		config.Each = log.add
	}
	config.TokenRate, config.AddressRate = 0, 0 // the command's own
	config.Log = a.Log.Level(zerolog.WarnLevel)
	s, err := serve.New(a.Ctx, config)
	if err != nil {
		return err
	}
	defer s.Close()
	token, err := s.CreateJob(c.Job, serve.Settings{Workload: c.Workload, Deadline: c.Deadline})
	if err != nil {
		return err
	}
	l, err := c.listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(a.Ctx)) // the command ends first
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	status, failed := c.execute(a, []string{"EVENKEEL_URL=" + certs.address(l), "EVENKEEL_JOB=" + c.Job, "EVENKEEL_TOKEN=" + token})
	state, known := s.Job(c.Job)
	stop()
	failed = errors.Join(failed, <-served)
	if log != nil {
		failed = errors.Join(failed, log.close())
	}
	if failed != nil {
		return failed
	}
	if known {
		s := newSummary(state, status)
		if c.JSON {
			err = a.WriteJSON(s)
		} else {
			err = cli.PrintLines(a.Out, s.lines())
		}
		if err != nil {
			return err
		}
	}
	if status != 0 {
		return cli.Exit(status)
	}
	return nil
}

// execute runs the command to its end and returns its exit status. Signals are passed on to it.
func (c *Cmd) execute(a *cli.App, env []string) (int, error) {
	cmd := exec.Command(c.Command[0], c.Command[1:]...) //nolint:gosec,noctx // running what was given, to its own end, is the purpose
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, a.Out, a.Errs
	if c.JSON {
		cmd.Stdout = a.Errs
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, badinput.Errorf("%s: %w", strings.Join(c.Command, " "), err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case got := <-signals:
			// A terminal sends Ctrl-C to the command as well.
			if got != os.Interrupt || !term.IsTerminal(int(os.Stdin.Fd())) {
				_ = cmd.Process.Signal(got) // it may have just ended
			}
		case err := <-ended:
			return exitStatus(cmd, err)
		}
	}
}

// exitStatus is that of a command that has ended, as a shell has it.
func exitStatus(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
