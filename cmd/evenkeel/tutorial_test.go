package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/pytorch"
	"evenkeel/internal/race"
	"evenkeel/internal/slow"
)

const tutorials = "../../docs/tutorials/"

// Tutorials are followed to the letter: files are saved as the page says, its sh blocks run
// in order, by one shell each, and a text block after one shows its standard output.
func TestTutorialFirstRun(t *testing.T) {
	t.Parallel()
	follow(t, tutorials+"first-run.md", "")
}

func TestTutorialPyTorch(t *testing.T) {
	slow.Skip(t) // two minutes
	if race.Enabled {
		t.Skip("two minutes of PyTorch; what of Evenkeel it runs has tests of its own under the race detector")
	}
	t.Parallel()
	python := pytorch.Python(t)
	t.Run("pytorch-job.md", func(t *testing.T) { follow(t, tutorials+"pytorch-job.md", python) })
	t.Run("forward-lora.md", func(t *testing.T) { // half as many steps
		page, err := os.ReadFile(tutorials + "forward-lora.md")
		if err != nil {
			t.Fatal(err)
		}
		short := filepath.Join(t.TempDir(), "forward-lora.md")
		if err := os.WriteFile(short, bytes.ReplaceAll(bytes.ReplaceAll(page, []byte("steps=256"), []byte("steps=128")), []byte("256 steps: "), []byte("128 steps: ")), 0o600); err != nil {
			t.Fatal(err)
		}
		follow(t, short, python)
	})
}

// The README's own command runs too, but not the one that tests everything.
func TestReadmeCommand(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "README.md")
	text := strings.ReplaceAll(string(page), "go run ./cmd/evenkeel ", "evenkeel ") // which is built already
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	follow(t, copied, "", "go test")
}

// follow runs a page in a folder of its own, without the sh blocks that begin with a skipped word.
func follow(t *testing.T, path, python string, skipped ...string) {
	t.Helper()
	if race.Enabled {
		t.Skip("pages test what is written, at the price of many runs")
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsOf(string(page))
	dir := t.TempDir()
	env := append(os.Environ(), "NO_COLOR=1", "HOME="+dir, "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1")
	if python != "" {
		packages, err := filepath.Abs("../../python")
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, "PYTHONPATH="+packages, "PATH="+filepath.Dir(python)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // two minutes under heavy load, for the slowest page
	defer cancel()
	ran := 0
steps:
	for _, s := range steps {
		if s.file != "" {
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, word := range skipped {
			if strings.HasPrefix(s.text, word) {
				continue steps
			}
		}
		var errs strings.Builder
		run := func() ([]byte, error) {
			errs.Reset()
			cmd := exec.CommandContext(ctx, "sh", "-e", "-c", s.text)
			cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = dir, env, &errs, 5*time.Second
			return cmd.Output()
		}
		out, err := run()
		for range 3 { // torchrun looks for a free port and takes it later: another test's connection may have it by then
			if err == nil || !strings.Contains(errs.String(), "Address already in use") {
				break
			}
			out, err = run()
		}
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s\n%s", path, s.line, err, s.text, errs.String(), out)
		}
		if s.shown != "" && !shows(s.shown, string(out)) {
			t.Errorf("%s:%d: the page shows\n%s\nbut the command prints\n%s\n%s", path, s.line, s.shown, out, errs.String())
		}
		ran++
	}
	if ran == 0 {
		t.Errorf("%s: nothing to run", path)
	}
}

// step is a file to save, or commands with the output that the page shows.
type step struct {
	line              int
	file, text, shown string
}

var (
	block  = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	saveAs = regexp.MustCompile("(?s)[Ss]ave this as `([a-z.-]+)`[^`]*$")
)

// stepsOf reads a page's blocks: those of sh are commands, text after one its output, any
// other language a file if the paragraph before it says "Save this as `name`".
func stepsOf(page string) []step {
	var out []step
	end := 0
	for _, m := range block.FindAllStringSubmatchIndex(page, -1) {
		before, language, text := page[end:m[0]], page[m[2]:m[3]], page[m[4]:m[5]]
		line := 1 + strings.Count(page[:m[0]], "\n")
		end = m[1]
		if i := strings.LastIndex(strings.TrimSpace(before), "\n\n"); i >= 0 {
			before = before[i:]
		}
		switch saved := saveAs.FindStringSubmatch(before); {
		case language == "sh":
			out = append(out, step{line: line, text: text})
		case language == "text" && len(out) > 0 && out[len(out)-1].file == "":
			out[len(out)-1].shown = text
		case saved != nil:
			out = append(out, step{line: line, file: saved[1], text: text})
		}
	}
	return out
}

// columns are what separates the columns of a table, which are as wide as their widest value.
var columns = regexp.MustCompile(` {2,}`)

// shows compares shown output to a command's: a line "..." stands for any number of lines, and "..." within a line for any text.
func shows(shown, out string) bool {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, l := range strings.Split(strings.TrimSuffix(shown, "\n"), "\n") {
		if l == "..." {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(l, "...")
		for i := range parts {
			parts[i] = columns.ReplaceAllString(regexp.QuoteMeta(parts[i]), ` {2,}`)
		}
		b.WriteString(strings.Join(parts, `.*`) + `[ \t]*\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String()).MatchString(out)
}

func TestShows(t *testing.T) {
	for _, c := range []struct {
		shown, out string
		want       bool
	}{
		{"a\n", "a\n", true},
		{"a\n", "a\nb\n", false},
		{"a\n...\n", "a\nb\nc\n", true},
		{"...\nc\n", "a\nb\nc\n", true},
		{"a ... s\n", "a 12 s\n", true},
		{"a.b\n", "axb\n", false},
		{"a   b\n1  ...\n", "a  b\n1  2\n", true},
		{"a  b\n", "a b\n", false},
	} {
		if got := shows(c.shown, c.out); got != c.want {
			t.Errorf("shows(%q, %q) = %v", c.shown, c.out, got)
		}
	}
	page := "Save this as `f.py`:\n\n```python\nx\n```\n\n```sh\nrun\n```\n\nit prints\n\n```text\nout\n```\n```\nnot run\n```\n```csv\nno file\n```\n"
	steps := stepsOf(page)
	if len(steps) != 2 || steps[0].file != "f.py" || steps[0].text != "x\n" || steps[1].text != "run\n" || steps[1].shown != "out\n" {
		t.Errorf("%+v", steps)
	}
}

// The page of operations brings up a service with TLS and a token, tunes a job, and kills the service, on a port that is free.
func TestOperations(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	for _, tool := range []string{"openssl", "curl", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	page, err := os.ReadFile("../../docs/guides/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	text := strings.NewReplacer("0.0.0.0:7070", "127.0.0.1:"+port, "7070", port).Replace(string(page))
	copied := filepath.Join(t.TempDir(), "operations.md")
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pids := filepath.Join(filepath.Dir(filepath.Dir(copied)), "*", "serve.pid")
	t.Cleanup(func() { // where the page failed, before its folder goes
		found, _ := filepath.Glob(pids)
		for _, f := range found {
			if text, err := os.ReadFile(f); err == nil {
				if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && t.Failed() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
	follow(t, copied, "")
}
