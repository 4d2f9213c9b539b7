package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const show = `printf '%s|%s|%s|%s|%s|%s|%s|%s' "$EVENKEEL_RANK" "$EVENKEEL_MICRO_BATCH" "$EVENKEEL_MICRO_STEPS" "$EVENKEEL_SHARE" "$EVENKEEL_GRADIENT_WEIGHT" "$EVENKEEL_GLOBAL_BATCH" "$EVENKEEL_NODE" "$EVENKEEL_DEVICE"`

// sh runs a command in dir, with nothing but the given variables set.
func sh(t *testing.T, dir, command string, env ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	c := exec.Command(path, "-c", command, "sh", "an argument")
	c.Dir, c.Env = dir, append(env, "PATH="+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	return string(out), err
}

// The script sets what it should for every rank, in the way its first lines tell, and
// runs nothing that a name holds.
func TestShell(t *testing.T) {
	dir := t.TempDir()
	s := example()
	s.Nodes[0].Name = "a'; touch hacked; '$(touch hacked)`touch hacked`"
	for name, format := range map[string]string{"sizes.sh": "torchrun", "m": "kubernetes"} {
		if err := Save(filepath.Join(dir, name), format, s); err != nil {
			t.Fatal(err)
		}
	}
	m := configMap(t, write(t, "kubernetes", s))
	for i, n := range s.Ranks() {
		want := strings.Join([]string{strconv.Itoa(i), strconv.Itoa(n.MicroBatch), strconv.Itoa(n.MicroSteps), strconv.Itoa(n.Share), decimal(n.GradientWeight), strconv.Itoa(s.GlobalBatch), n.Name, n.Device}, "|")
		rank := "RANK=" + strconv.Itoa(i)
		got, err := sh(t, dir, `. ./sizes.sh && exec sh -c '`+strings.ReplaceAll(show, "'", `'\''`)+`; printf " %s" "$1"' sh "$@"`, rank, "WORLD_SIZE=3")
		if err != nil || got != want+" an argument" {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
		name := "rank-" + strconv.Itoa(i) + ".env"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(m.Data[name]), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := sh(t, dir, "set -a; . ./"+name+"; set +a; sh -c '"+strings.ReplaceAll(show, "'", `'\''`)+"'"); err != nil || got != want {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	}
	for _, bad := range [][]string{{}, {"RANK=3"}, {"RANK=x"}, {"RANK=0", "WORLD_SIZE=4"}} {
		for _, command := range []string{". ./sizes.sh && echo went on", "sh ./sizes.sh"} {
			if got, err := sh(t, dir, command, bad...); err == nil || strings.Contains(got, "went on") || !strings.Contains(got, "evenkeel: ") {
				t.Errorf("%v: %v %s", bad, err, got)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "hacked")); err == nil {
		t.Error("a name was run as a command")
	}
}
